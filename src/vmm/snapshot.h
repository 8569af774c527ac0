// One snapshot of a machine (DESIGN.md 3.4): everything that needs the guest to stand still, then a
// forked child that writes what it sees while the guest goes on. Device thread.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "memory/freeze.h"
#include "memory/page_scan.h"
#include "vmm/machine.h"
#include "wire/vmm_control.h"

namespace space {

class Snapshot {
 public:
  // Takes the descriptors in the order of wire/vmm_control.h. A machine that was paused stays so.
  //   errors: refused, and nothing has changed: kInvalidArgument naming the descriptor or field,
  //   kExhausted above max_bytes, kUnavailable when the VM has ended, else the system's
  static Result<std::unique_ptr<Snapshot>> Take(Machine& machine, PageScan& scan,
                                                const wire::SnapshotRequest& request,
                                                std::vector<UniqueFd> fds);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();  // kills the child and waits for it

  // Readable once the child has ended; -1 when it could not even be made.
  int child_fd() const { return child_.get(); }
  // The outcome; after child_fd became readable.
  wire::SnapshotReply Finish();

 private:
  struct Targets {
    UniqueFd state;
    UniqueFd memory;
    LayerId memory_id{};
    std::vector<UniqueFd> disk_tops;
    UniqueFd gate;  // of the child
  };
  using Time = std::chrono::steady_clock::time_point;

  Snapshot() = default;
  static Result<Targets> CheckTargets(const Machine& machine, const wire::SnapshotRequest& request,
                                      std::vector<UniqueFd> fds);
  // With the vCPUs parked. `has_changed`: the disks' tops were changed when it failed.
  Result<void> Freeze(Machine& machine, PageScan& scan, const wire::SnapshotRequest& request,
                      bool& has_changed);
  Result<void> Fork(const Machine& machine, const wire::SnapshotRequest& request,
                    const std::vector<int>& frozen_disks);
  void Reap(int& status);

  Targets targets_;
  std::string state_;  // bytes of the state file
  FreezePlan plan_;
  UniqueFd child_;  // pidfd
  Time forked_;
  wire::SnapshotReply reply_;
};

}  // namespace space
