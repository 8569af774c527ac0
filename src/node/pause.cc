// Pause: the sandbox becomes a snapshot of its own and loses its VM.
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int kResumeLimitMs = 30'000;

}  // namespace

asio::awaitable<Result<void>> Node::Pause(std::string team_id, std::string id, bool keep_memory) {
  SPACE_CO_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  co_return co_await PauseWith(sandbox, keep_memory, Consent::kAsk);
}

asio::awaitable<Result<void>> Node::PauseWith(SandboxPointer sandbox, bool keep_memory,
                                              Consent consent) {
  const std::string id = sandbox->record.id;
  if (sandbox->end_reason) {
    co_return NoSandbox(id);
  }
  const bool is_joined = sandbox->record.state == SandboxState::kPausing || sandbox->is_parting;
  if (sandbox->is_moving()) {
    SPACE_CO_TRY_VOID(co_await WaitUntilStill(sandbox), "");
  }
  if (is_joined) {
    if (sandbox->record.state == SandboxState::kPaused) {
      co_return Result<void>();
    }
    co_return Fail(ErrorCode::kInternal, "sandbox could not be paused");
  }
  if (sandbox->record.state != SandboxState::kRunning || sandbox->is_moving()) {
    co_return Fail(ErrorCode::kConflict,
                   "sandbox is " + std::string(SandboxStateName(sandbox->record.state)), id);
  }
  co_return co_await PauseNow(sandbox, keep_memory, consent);
}

asio::awaitable<Result<void>> Node::PauseNow(SandboxPointer sandbox, bool keep_memory,
                                             Consent consent) {
  SandboxRecord& record = sandbox->record;
  SPACE_CO_TRY_VOID(catalog_.sandboxes().Move(record, SandboxState::kPausing), "pause");
  sandbox->is_in_hands = true;
  sandbox->changed.Notify();
  auto image = co_await PauseVm(sandbox, keep_memory, consent);
  Result<void> stored;
  if (!image) {
    stored = Fail(std::move(image).error());
  } else {
    SnapshotRecord& snapshot = (*image)->record;
    snapshot.kind = SnapshotKind::kPause;
    snapshot.tag.clear();
    stored = co_await SyncLayers();
    if (stored) {
      const Micros end_at = std::exchange(record.end_at, Now());
      record.snapshot_id = snapshot.id;
      stored = StoreSnapshot(sandbox, **image, SandboxState::kPaused);
      if (!stored) {
        record.end_at = end_at;
        record.snapshot_id.clear();
      }
    }
    if (!stored) {
      layers_->RemoveSnapshotFiles(snapshot.id);
    }
  }
  if (!stored) {
    sandbox->Tell(log::Level::kWarn, "pause_failed",
                  {{"sandbox_id", record.id}, {"error", stored.error().message()}});
    co_await UndoPause(sandbox);
    if (sandbox->end_reason) {
      co_return NoSandbox(record.id);
    }
    co_return Fail(std::move(stored).error().While("pause"));
  }
  // It is on the disk: whatever happens to the process now changes nothing.
  sandbox->is_parting = true;
  sandbox->CutStreams();
  co_await EndProcess(sandbox);
  launcher_.Release(record.id);
  sandbox->vmm->Close();
  sandbox->vmm = nullptr;
  sandbox->chains = {};
  sandbox->is_in_hands = false;
  sandbox->is_parting = false;
  record.vmm_pid = 0;
  sandbox->changed.Notify();
  sandbox->Tell(log::Level::kInfo, "sandbox_paused",
                {{"sandbox_id", record.id}, {"memory", keep_memory ? 1 : 0}});
  co_return Result<void>();
}

// Without the guest's consent its memory is as whole as with it, and its disk what a power cut
// leaves.
asio::awaitable<Result<ImagePointer>> Node::PauseVm(SandboxPointer sandbox, bool keep_memory,
                                                    Consent consent) {
  const auto frozen = co_await PostFreeze(sandbox->vmm, FreezeKind::kKeep);
  if (!frozen && (consent == Consent::kAsk || sandbox->process_ended)) {
    co_return Fail(Error(frozen.error()).While("stop processes"));
  }
  if (!frozen) {
    sandbox->Tell(log::Level::kWarn, "pause_without_consent",
                  {{"sandbox_id", sandbox->record.id}, {"error", frozen.error().message()}});
  }
  if (!keep_memory) {
    co_return DiskImage(sandbox);
  }
  SnapshotOrder order;
  order.during = SandboxState::kPausing;
  order.stays_paused = true;
  co_return co_await TakeSnapshot(sandbox, order);
}

// The guest has just written its disks out and runs nothing: its top is what a power cut would
// leave, which is what a boot expects.
Result<ImagePointer> Node::DiskImage(const SandboxPointer& sandbox) {
  auto image = std::make_shared<MachineImage>();
  const SandboxRecord& source = sandbox->record;
  SnapshotRecord& record = image->record;
  record.id = RandomHex(16);
  record.team_id = source.team_id;
  record.template_id = source.template_id;
  record.source_id = source.id;
  record.base_template_id = source.template_id;
  record.vcpus = source.vcpus;
  record.memory_mib = source.memory_mib;
  record.disk_mib = source.disk_mib;
  record.environment = source.environment;
  record.has_memory = false;
  record.created_at = Now();
  image->chains.root = sandbox->chains.root;
  image->chains.modules = sandbox->chains.modules;
  SPACE_TRY_VOID(layers_->Freeze(*image->chains.root.back()), "pause");
  return image;
}

// The guest goes on where it stood. One whose agent does not answer keeps its VM: whatever it holds
// is its owner's, who may try again or kill it.
asio::awaitable<void> Node::UndoPause(SandboxPointer sandbox) {
  Result<void> goes_on = Fail(ErrorCode::kUnavailable, "the VM ended");
  if (!sandbox->process_ended) {
    goes_on = co_await sandbox->vmm->Request(wire::ResumeRequest{}, {}, kResumeLimitMs);
  }
  if (goes_on) {
    const auto thawed = co_await PostUnfreeze(sandbox->vmm);
    if (!thawed && !sandbox->process_ended) {
      sandbox->Tell(log::Level::kWarn, "guest_not_unfrozen",
                    {{"sandbox_id", sandbox->record.id}, {"error", thawed.error().message()}});
    }
  }
  sandbox->is_in_hands = false;
  if (goes_on && !sandbox->process_ended) {
    SettleRunning(sandbox);
    http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
    co_return;
  }
  if (!sandbox->process_ended) {
    sandbox->is_in_hands = true;
    co_await EndProcess(sandbox);
    sandbox->record.death_reason = "pause_failed";
    sandbox->record.death_detail = goes_on ? "" : goes_on.error().message();
    sandbox->is_in_hands = false;
  }
  Bury(sandbox);
}

}  // namespace space
