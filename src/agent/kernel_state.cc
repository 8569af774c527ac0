#include "agent/kernel_state.h"

#include <fcntl.h>
#include <linux/random.h>
#include <sys/ioctl.h>

#include <array>
#include <cstring>
#include <ctime>

namespace space::agent {
namespace {

constexpr size_t kMaxEntropyBytes = 512;

}  // namespace

LinuxKernelState::LinuxKernelState() : random_(open("/dev/urandom", O_RDWR | O_CLOEXEC)) {}

WallTime LinuxKernelState::Now() const {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

Result<void> LinuxKernelState::SetClock(WallTime now) {
  const timespec wanted{.tv_sec = now.count() / 1'000'000'000,
                        .tv_nsec = now.count() % 1'000'000'000};
  if (clock_settime(CLOCK_REALTIME, &wanted) < 0) {
    return FailErrno("set the clock");
  }
  return {};
}

Result<void> LinuxKernelState::AddEntropy(std::span<const std::byte> bytes) {
  if (!random_.valid()) {
    return Fail(ErrorCode::kUnavailable, "/dev/urandom is not there");
  }
  if (bytes.size() > kMaxEntropyBytes) {
    return Fail(ErrorCode::kInvalidArgument, "too much entropy");
  }
  // random(4): rand_pool_info and the bytes in one buffer.
  alignas(rand_pool_info) char buffer[sizeof(rand_pool_info) + kMaxEntropyBytes] = {};
  const std::array<int, 2> header{static_cast<int>(bytes.size() * 8),  // entropy_count
                                  static_cast<int>(bytes.size())};     // buf_size
  static_assert(sizeof(header) == sizeof(rand_pool_info));
  std::memcpy(buffer, header.data(), sizeof(header));
  std::memcpy(buffer + sizeof(header), bytes.data(), bytes.size());
  if (ioctl(random_.get(), RNDADDENTROPY, buffer) < 0) {
    return FailErrno("add entropy");
  }
  if (ioctl(random_.get(), RNDRESEEDCRNG) < 0) {
    return FailErrno("reseed the kernel's generator");
  }
  return {};
}

Result<void> CorrectClock(KernelState& kernel, WallTime host) {
  const auto ahead = kernel.Now() - host;
  if (ahead >= WallTime(0) && ahead < kMaxAhead) {
    return {};
  }
  return kernel.SetClock(host);
}

}  // namespace space::agent
