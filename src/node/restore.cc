// A VM that goes on from a snapshot: its process is made, its machine restored, then it is told who
// it is.
#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int kRestoreLimitMs = 60'000;
constexpr int kResumeLimitMs = 30'000;
// Its end is seen this long after its socket closed, at most.
constexpr std::chrono::seconds kCauseLimit{1};

// Each keeps a CPU busy from end to end: more at once than this only make all of them slower.
unsigned StartsAtOnce() { return std::max(4U, std::thread::hardware_concurrency()); }

}  // namespace

Result<void> Node::LaunchProcess(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  std::vector<UniqueFd> descriptors;
  SPACE_TRY(UniqueFd log_file, OpenAppend(sandbox->files.vmm_log()), "open log");
  SPACE_TRY(UniqueFd kvm, OpenReadWrite(config_.kvm_path), "open KVM device");
  descriptors.push_back(std::move(log_file));
  descriptors.push_back(std::move(kvm));
  SPACE_TRY(Launched launched,
            launcher_.Launch({wire::Role::kVmm, record.id}, std::move(descriptors)), "start VMM");
  sandbox->process_ended = false;
  sandbox->process_status.clear();
  sandbox->TakeProcess(std::move(launched.pidfd));
  http::Spawn(executor_, WatchProcess(sandbox), "watch_process");
  record.vmm_pid = launched.pid;
  // It cannot have been reaped yet, so its stat is there even if it has ended.
  SPACE_TRY(record.vmm_start_ticks, ProcessStartTicks(launched.pid), "start VMM");
  record.launch_us = Now() - sandbox->asked_at;
  SPACE_TRY_VOID(sandbox->files.WriteProcess(record.vmm_pid, record.vmm_start_ticks), "start VMM");
  SPACE_TRY(sandbox->vmm, VmmClient::Connect(executor_, launched.control_path), "start VMM");
  return {};
}

Result<void> Node::PrepareVm(const SandboxPointer& sandbox) {
  SPACE_TRY_VOID(sandbox->files.Renew(), "make files");
  SPACE_TRY(NewLayer top,
            layers_->Create(sandbox->record.team_id, LayerKind::kDisk, LayerStorage::kFile,
                            MiB(sandbox->record.disk_mib)),
            "make disk");
  sandbox->top = std::move(top.layer);
  sandbox->top_fd = std::move(top.fd);
  return LaunchProcess(sandbox);
}

asio::awaitable<Result<void>> Node::RestoreVm(SandboxPointer sandbox, ImagePointer image) {
  SPACE_CO_TRY(VmmMessageWithFds restore,
               MakeRestore(config_, *layers_, *image, sandbox->files, std::move(sandbox->top_fd)),
               "prepare");
  auto restored = co_await sandbox->vmm->Request(std::move(restore.request), std::move(restore.fds),
                                                 kRestoreLimitMs);
  if (!restored) {
    const ErrorCode code = restored.error().code();
    image->is_refused = code != ErrorCode::kUnavailable && code != ErrorCode::kTimeout;
    co_return Fail(std::move(restored).error().While("restore VM"));
  }
  sandbox->chains = image->chains;
  sandbox->chains.root.push_back(std::move(sandbox->top));
  SandboxRecord& record = sandbox->record;
  record.kernel_release = image->record.kernel_release;
  record.agent_version = image->record.agent_version;
  record.envd_version = image->record.envd_version;
  record.hello_us = Now() - sandbox->asked_at;
  co_return Result<void>();
}

// A guest that fails by itself before anybody could use it gets one more try. Emulated hosts make
// it needed: there a kernel now and then dies in its first seconds when many start at once.
asio::awaitable<Result<void>> Node::StartFrom(SandboxPointer sandbox, ImagePointer image,
                                              InitKind kind) {
  const std::shared_ptr<Crowd> crowd = CrowdOf(image->record);
  SPACE_CO_TRY_VOID(co_await WaitToStart(sandbox, crowd), "");
  const Turn turn(crowd, kRestoreTurn);
  for (bool is_first = true;; is_first = false) {
    Result<void> started;
    if (sandbox->vmm == nullptr) {  // a fork has launched it already
      started = PrepareVm(sandbox);
    }
    if (started) {
      started = co_await RestoreVm(sandbox, image);
    }
    if (started) {
      started = co_await Identify(sandbox, kind);
    }
    if (started && sandbox->process_ended) {
      started = Fail(ErrorCode::kUnavailable, "the VM ended");
    }
    if (started) {
      co_return started;
    }
    // Not after kTimeout: who waited that long is told so.
    const bool has_failed_by_itself =
        !sandbox->end_reason && started.error().code() == ErrorCode::kUnavailable;
    if (!has_failed_by_itself) {
      co_return started;
    }
    Error shown = std::move(started).error();
    Error error = co_await WithCause(sandbox, std::move(shown));
    if (!is_first) {
      co_return Fail(std::move(error));
    }
    log::Warn("restore_tried_again",
              {{"sandbox_id", sandbox->record.id}, {"error", error.message()}});
    co_await StopVm(sandbox);
  }
}

// What is known of a VM that is gone, behind the error that showed it.
asio::awaitable<Error> Node::WithCause(SandboxPointer sandbox, Error error) {
  const std::function<bool()> is_ended = [sandbox] { return sandbox->process_ended; };
  co_await WaitUntil(sandbox->changed, is_ended, kCauseLimit);
  std::string cause;
  if (sandbox->process_ended) {
    const DeathCause death = FindDeathCause(*sandbox);
    cause = death.reason + (death.detail.empty() ? "" : ": " + death.detail);
  } else {
    cause = "the VM runs";
  }
  co_return Error(error.code(), error.message() + " (" + Printable(cause) + ")");
}

// Back to before PrepareVm.
asio::awaitable<void> Node::StopVm(SandboxPointer sandbox) {
  co_await EndProcess(sandbox);
  launcher_.Release(sandbox->record.id);
  if (sandbox->vmm != nullptr) {
    sandbox->vmm->Close();
    sandbox->vmm = nullptr;
  }
  sandbox->chains = {};
  sandbox->top = nullptr;
  sandbox->top_fd = UniqueFd();
  sandbox->record.vmm_pid = 0;
}

const std::shared_ptr<Node::Crowd>& Node::CrowdOf(const SnapshotRecord& image) const {
  return image.kind == SnapshotKind::kTemplate ? starting_ : starting_used_;
}

// However long the queue is; but it must move.
asio::awaitable<Result<void>> Node::WaitToStart(SandboxPointer sandbox,
                                                std::shared_ptr<Crowd> crowd) {
  while (crowd->count >= StartsAtOnce()) {
    const uint64_t seen = crowd->left;
    const std::function<bool()> has_moved = [crowd, seen] { return crowd->left != seen; };
    if (!co_await WaitUntil(crowd->changed, has_moved, config_.hello_timeout)) {
      co_return Fail(ErrorCode::kExhausted, "too many others are starting, and none gets ready");
    }
  }
  if (sandbox->end_reason) {
    co_return Fail(ErrorCode::kUnavailable, "sandbox ended while it waited for its turn");
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> Node::Identify(SandboxPointer sandbox, InitKind kind) {
  SPACE_CO_TRY_VOID(co_await sandbox->vmm->Request(wire::ResumeRequest{}, {}, kResumeLimitMs),
                    "resume VM");
  SPACE_CO_TRY_VOID(co_await PostInit(sandbox->vmm, sandbox->record, kind), "make it unique");
  co_return Result<void>();
}

Result<ImagePointer> Node::LoadImage(const SnapshotRecord& record) {
  auto image = std::make_shared<MachineImage>();
  image->record = record;
  SPACE_TRY(image->chains, layers_->Load({LayerUser::Kind::kSnapshot, record.id}),
            "snapshot " + record.id);
  if (image->chains.root.empty() || image->chains.modules.empty()) {
    return Fail(ErrorCode::kInternal, "snapshot has no disk layers", record.id);
  }
  for (const auto* chain : {&image->chains.memory, &image->chains.root, &image->chains.modules}) {
    for (const LayerPointer& layer : *chain) {
      SPACE_TRY([[maybe_unused]] const UniqueFd fd, layers_->Open(*layer), "snapshot " + record.id);
    }
  }
  if (record.has_memory) {
    SPACE_TRY([[maybe_unused]] const UniqueFd state, OpenReadOnly(layers_->StatePath(record.id)),
              "snapshot " + record.id);
  }
  return image;
}

}  // namespace space
