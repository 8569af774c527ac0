#include "vmm/layer_loss.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>

namespace space {
namespace {

std::atomic<int> g_exit_record{-1};

// As wire::EncodeExitRecord gives it; the handler may not allocate. A test holds them together.
constexpr std::string_view kRecord = "layer_lost a layer under the guest's memory was cut\n";

void OnBusError(int /*signal*/) {
  const int fd = g_exit_record.load(std::memory_order_relaxed);
  [[maybe_unused]] const ssize_t written =
      fd < 0 ? 0 : ::pwrite(fd, kRecord.data(), kRecord.size(), 0);
  ::_exit(1);
}

}  // namespace

void EndOnLayerLoss(int exit_record) {
  g_exit_record.store(exit_record, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = OnBusError;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace space
