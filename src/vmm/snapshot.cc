#include "vmm/snapshot.h"

#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/units.h"
#include "layer/sparse_layer.h"
#include "vmm/snapshot_child.h"

namespace space {
namespace {

using std::chrono::steady_clock;

uint64_t MicrosSince(steady_clock::time_point begun) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begun).count());
}

Result<void> CheckTop(const UniqueFd& fd, uint64_t size_bytes) {
  SPACE_TRY(UniqueFd own, fd.Duplicate(), "open layer");
  SPACE_TRY(const SparseLayer layer, SparseLayer::Open(std::move(own)), "open layer");
  if (!layer.is_empty() || layer.page_count() * kPageBytes != size_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "is not an empty layer of the disk's size");
  }
  return {};
}

// Lets the guest go on as it did before, however the snapshot ends.
class Standstill {
 public:
  Standstill(Machine& machine, bool stays_paused)
      : machine_(&machine), was_paused_(machine.is_paused()), stays_paused_(stays_paused) {}
  Standstill(const Standstill&) = delete;
  Standstill& operator=(const Standstill&) = delete;
  ~Standstill() { End(true); }

  Result<void> Begin() {
    is_begun_ = true;
    if (was_paused_) {
      return {};
    }
    if (stays_paused_) {
      return machine_->Pause();
    }
    machine_->ParkVcpus();
    return {};
  }
  void End(bool has_failed) {
    if (!is_begun_ || was_paused_) {
      return;
    }
    is_begun_ = false;
    if (!stays_paused_) {
      machine_->UnparkVcpus();
    } else if (has_failed) {
      const Result<void> resumed = machine_->Resume();
      if (!resumed) {
        log::Error("resume_failed", {{"why", resumed.error().message()}});
      }
    }
  }

 private:
  Machine* machine_;
  bool was_paused_;
  bool stays_paused_;
  bool is_begun_ = false;
};

}  // namespace

Result<Snapshot::Targets> Snapshot::CheckTargets(const Machine& machine,
                                                 const wire::SnapshotRequest& request,
                                                 std::vector<UniqueFd> fds) {
  const std::vector<uint64_t> disks = machine.WritableDisks();
  const size_t needed = 2 + disks.size() + (request.child_waits ? 1 : 0);
  if (fds.size() != needed) {
    return Fail(ErrorCode::kInvalidArgument,
                std::to_string(fds.size()) + " descriptors came, " + std::to_string(needed) +
                    " are needed (state, memory layer, a new top for each writable disk" +
                    (request.child_waits ? ", a socket for the child)" : ")"));
  }
  Targets targets;
  targets.state = std::move(fds[0]);
  targets.memory = std::move(fds[1]);
  SPACE_TRY(const uint64_t state_bytes, FileSize(targets.state.get()), "state file");
  if (state_bytes != 0) {
    return Fail(ErrorCode::kInvalidArgument, "state file is not empty");
  }
  SPACE_TRY(targets.memory_id, CheckFreezeTarget(targets.memory.get(), machine.memory()),
            "memory layer");
  for (size_t at = 0; at < disks.size(); ++at) {
    SPACE_TRY_VOID(CheckTop(fds[2 + at], disks[at]), "new top " + std::to_string(at));
    targets.disk_tops.push_back(std::move(fds[2 + at]));
  }
  if (request.child_waits) {
    targets.gate = std::move(fds.back());
  }
  return targets;
}

Result<std::unique_ptr<Snapshot>> Snapshot::Take(Machine& machine, PageScan& scan,
                                                 const wire::SnapshotRequest& request,
                                                 std::vector<UniqueFd> fds) {
  if (request.kept_memory_layers > machine.memory_layers().size()) {
    return Fail(ErrorCode::kInvalidArgument,
                "kept_memory_layers is " + std::to_string(request.kept_memory_layers) +
                    ", the machine has " + std::to_string(machine.memory_layers().size()));
  }
  auto snapshot = std::unique_ptr<Snapshot>(new Snapshot());
  SPACE_TRY(snapshot->targets_, CheckTargets(machine, request, std::move(fds)), "snapshot");
  const Time begun = steady_clock::now();
  Standstill standstill(machine, request.stays_paused);
  SPACE_TRY_VOID(standstill.Begin(), "snapshot: stop the guest");
  snapshot->reply_.park_us = MicrosSince(begun);
  bool has_changed = false;
  const Result<void> frozen = snapshot->Freeze(machine, scan, request, has_changed);
  const Time before_resume = steady_clock::now();
  standstill.End(!frozen.has_value());
  snapshot->reply_.resume_us = MicrosSince(before_resume);
  snapshot->reply_.pause_us = MicrosSince(begun);
  if (!frozen && !has_changed) {
    return Fail(Error(frozen.error()).While("snapshot"));
  }
  if (!frozen) {
    snapshot->reply_.error = frozen.error().message();
  }
  return snapshot;
}

Result<void> Snapshot::Freeze(Machine& machine, PageScan& scan,
                              const wire::SnapshotRequest& request, bool& has_changed) {
  Time begun = steady_clock::now();
  SPACE_TRY(SavedState state, machine.Save(), "save state");
  reply_.park_us += MicrosSince(begun);

  begun = steady_clock::now();
  SPACE_TRY_VOID(scan.Scan(machine.memory()), "scan memory");
  plan_ = PlanFreeze(machine.memory_map(), request.kept_memory_layers, scan.dirty(), scan.clean());
  reply_.dirty_pages = plan_.dirty_pages;
  reply_.written_pages = plan_.written_pages;
  reply_.mappings = static_cast<uint32_t>(plan_.map_after.extents().size());
  reply_.scan_us = MicrosSince(begun);
  if (request.max_bytes != 0 && plan_.written_pages * kPageBytes > request.max_bytes) {
    return Fail(ErrorCode::kExhausted, "would write " +
                                           FormatSize(plan_.written_pages * kPageBytes) +
                                           ", allowed are " + FormatSize(request.max_bytes));
  }

  begun = steady_clock::now();
  size_t done = 0;
  const Result<std::vector<int>> frozen = machine.FreezeDisks(std::move(targets_.disk_tops), done);
  has_changed = done > 0;
  if (!frozen) {
    return Fail(frozen.error());
  }
  const std::vector<LayerId>& layers = machine.memory_layers();
  state.memory_layers.assign(layers.begin(), layers.begin() + request.kept_memory_layers);
  state.memory_layers.push_back(targets_.memory_id);
  state.memory_map = plan_.map_after;
  state_ = state.Encode();
  reply_.park_us += MicrosSince(begun);
  return Fork(machine, request, *frozen);
}

Result<void> Snapshot::Fork(const Machine& machine, const wire::SnapshotRequest& request,
                            const std::vector<int>& frozen_disks) {
  const SnapshotWork work{.plan = &plan_,
                          .memory = &machine.memory(),
                          .state = state_,
                          .memory_fd = targets_.memory.get(),
                          .state_fd = targets_.state.get(),
                          .frozen_disks = frozen_disks,
                          .is_durable = request.is_durable,
                          .gate_fd = targets_.gate.get()};
  if (frozen_disks.size() > SnapshotWork::kMaxFrozenDisks) {
    return Fail(ErrorCode::kInternal, "too many disks");
  }
  Time begun = steady_clock::now();
  DontForkMarks marks(plan_, machine.memory());
  reply_.mark_us = MicrosSince(begun);

  forked_ = steady_clock::now();
  // Not fork(): its handlers take locks that a vCPU thread may hold, and the child needs none.
  int pidfd = -1;
  const long pid = ::syscall(SYS_clone, CLONE_PIDFD | SIGCHLD, nullptr, &pidfd, nullptr, nullptr);
  if (pid == 0) {
    RunSnapshotChild(work);
  }
  const int error = pid < 0 ? errno : 0;
  reply_.fork_us = MicrosSince(forked_);

  begun = steady_clock::now();
  marks.Undo();
  reply_.mark_us += MicrosSince(begun);
  if (pid < 0) {
    errno = error;
    return FailErrno("fork the child that writes the snapshot");
  }
  child_ = UniqueFd(pidfd);
  targets_.gate = UniqueFd();
  return {};
}

Snapshot::~Snapshot() {
  if (child_.valid()) {
    ::syscall(SYS_pidfd_send_signal, child_.get(), SIGKILL, nullptr, 0);
    int status = 0;
    Reap(status);
  }
}

void Snapshot::Reap(int& status) {
  siginfo_t info = {};
  int waited = -1;
  do {
    waited = ::waitid(P_PIDFD, static_cast<id_t>(child_.get()), &info, WEXITED);
  } while (waited != 0 && errno == EINTR);
  // Its exit code, or 256 plus the signal.
  status = waited != 0 ? 255 : info.si_code == CLD_EXITED ? info.si_status : 256 + info.si_status;
  child_ = UniqueFd();
}

wire::SnapshotReply Snapshot::Finish() {
  if (child_.valid()) {
    int status = 0;
    Reap(status);
    reply_.write_us = MicrosSince(forked_);
    if (status >= 256) {
      reply_.error =
          "the child that writes the snapshot was ended by signal " + std::to_string(status - 256);
    } else if (status != 0) {
      reply_.error = std::string("write snapshot: ") + ::strerror(status);
    }
  }
  return reply_;
}

}  // namespace space
