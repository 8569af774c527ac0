#include "agent/guest.h"

#include "base/log.h"

namespace space::agent {

Guest Guest::OfThisMachine(const asio::any_io_executor& executor) {
  auto freezer = Freezer::Create(executor, "/sys/fs/cgroup");
  if (!freezer) {
    log::Warn("cgroup_missing", {{"error", freezer.error().message()}});
    freezer = Freezer(executor);
  }
  auto generation = Generation::Create("");
  if (!generation) {
    log::Warn("generation_missing", {{"error", generation.error().message()}});
  }
  Guest guest{.freezer = *std::move(freezer),
              .kernel = std::make_unique<LinuxKernelState>(),
              .root = "",
              .generation = std::nullopt,
              .has_disks = true};
  if (generation) {
    guest.generation = *std::move(generation);
  }
  return guest;
}

Result<Guest> Guest::None(const asio::any_io_executor& executor, const std::string& root,
                          const std::string& cgroup) {
  Guest guest{.freezer = Freezer(executor),
              .kernel = std::make_unique<NoKernelState>(),
              .root = std::nullopt,
              .generation = std::nullopt,
              .has_disks = false};
  if (!cgroup.empty()) {
    SPACE_TRY(guest.freezer, Freezer::Create(executor, cgroup), "cgroup");
  }
  if (!root.empty()) {
    SPACE_TRY(guest.generation, Generation::Create(root), "guest root");
    guest.root = root;
  }
  return guest;
}

}  // namespace space::agent
