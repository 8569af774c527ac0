// Resume: a paused sandbox gets a VM again, from its memory or, without one, by booting its disk.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int64_t kWakeSeconds = 300;  // E2B.md 2.6

}  // namespace

asio::awaitable<Result<ResumeOutcome>> Node::Resume(std::string team_id, std::string id,
                                                    ResumeSpec spec) {
  SPACE_CO_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (sandbox->end_reason || sandbox->record.state == SandboxState::kCreating) {
    co_return NoSandbox(id);
  }
  const bool is_joined = sandbox->record.state == SandboxState::kResuming;
  if (ShownAs(sandbox->record.state) == ShownState::kPaused && sandbox->is_moving()) {
    SPACE_CO_TRY_VOID(co_await WaitUntilStill(sandbox), "");
  }
  if (sandbox->record.state == SandboxState::kPaused) {
    if (is_joined) {
      co_return Fail(ErrorCode::kInternal, "sandbox could not be resumed");
    }
    SPACE_CO_TRY_VOID(co_await ResumeNow(sandbox, spec), "");
    co_return ResumeOutcome{sandbox->record, false};
  }
  if (sandbox->record.state == SandboxState::kResuming) {  // of those that waited, one was first
    SPACE_CO_TRY_VOID(co_await WaitUntilStill(sandbox), "");
    if (sandbox->record.state != SandboxState::kRunning) {
      co_return Fail(ErrorCode::kInternal, "sandbox could not be resumed");
    }
  } else if (spec.refuses_running && !is_joined) {
    co_return Fail(ErrorCode::kConflict,
                   "sandbox is " + std::string(SandboxStateName(sandbox->record.state)), id);
  }
  SPACE_CO_TRY(SandboxRecord record, ExtendTimeout(team_id, id, spec.timeout_seconds), "");
  co_return ResumeOutcome{std::move(record), !is_joined};
}

asio::awaitable<Result<void>> Node::ResumeNow(SandboxPointer sandbox, ResumeSpec spec) {
  SandboxRecord& record = sandbox->record;
  SPACE_CO_TRY_VOID(
      CheckRoomFor({record.vcpus, record.memory_mib, record.disk_mib}, record.team_id), "");
  SPACE_CO_TRY(const std::optional<SnapshotRecord> snapshot,
               catalog_.snapshots().Find(record.snapshot_id), "resume");
  if (!snapshot) {
    co_return Fail(ErrorCode::kInternal, "the snapshot of the paused sandbox is missing");
  }
  SPACE_CO_TRY(const ImagePointer image, LoadImage(*snapshot), "resume");
  const LayerChains held = image->chains;  // until the snapshot's row is gone: then they go too
  if (!spec.keeps_memory) {
    image->record.has_memory = false;
    image->chains.memory.clear();
  }
  SPACE_CO_TRY_VOID(catalog_.sandboxes().Move(record, SandboxState::kResuming), "resume");
  sandbox->is_in_hands = true;
  sandbox->asked_at = Now();
  sandbox->changed.Notify();
  auto started = co_await StartPaused(sandbox, image);
  if (started && sandbox->process_ended) {
    started = Fail(ErrorCode::kUnavailable, "the VM ended");
  }
  if (started) {
    started = StoreResumed(sandbox, spec.timeout_seconds);
  }
  if (started) {
    sandbox->is_in_hands = false;
    sandbox->changed.Notify();
    http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
    sandbox->Tell(log::Level::kInfo, "sandbox_resumed",
                  {{"sandbox_id", record.id}, {"ready_us", record.ready_us}});
    co_return Result<void>();
  }
  // Its snapshot is as it was: it stays paused, and may be tried again.
  sandbox->Tell(log::Level::kWarn, "resume_failed",
                {{"sandbox_id", record.id}, {"error", started.error().message()}});
  co_await StopVm(sandbox);
  sandbox->is_in_hands = false;
  if (const auto moved = catalog_.sandboxes().Move(record, SandboxState::kPaused); !moved) {
    log::Error("resume_not_undone",
               {{"sandbox_id", record.id}, {"error", moved.error().message()}});
  }
  sandbox->changed.Notify();
  co_return Fail(std::move(started).error().While("resume"));
}

asio::awaitable<Result<void>> Node::StartPaused(SandboxPointer sandbox, ImagePointer image) {
  co_await ShortenDisk(nullptr, image);
  if (!image->record.has_memory) {
    const Turn turn(starting_used_, kBootTurn);
    co_return co_await Boot(sandbox, image->chains);
  }
  co_return co_await StartFrom(sandbox, image, InitKind::kResumed);
}

Result<void> Node::StoreResumed(const SandboxPointer& sandbox, int64_t timeout_seconds) {
  const SandboxRecord before = sandbox->record;
  SandboxRecord& record = sandbox->record;
  const Micros now = Now();
  record.end_at = now + timeout_seconds * kMicrosPerSecond;
  record.origin = "resumed";
  record.ready_us = now - sandbox->asked_at;
  const std::string snapshot_id = std::exchange(record.snapshot_id, "");
  const auto store = [&]() -> Result<void> {
    SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kFast), "");
    SPACE_TRY_VOID(
        layers_->Store({LayerUser::Kind::kSandbox, record.id}, record.team_id, sandbox->chains),
        "");
    SPACE_TRY_VOID(catalog_.layers().Forget({LayerUser::Kind::kSnapshot, snapshot_id}), "");
    SPACE_TRY([[maybe_unused]] const bool was_there, catalog_.snapshots().Delete(snapshot_id), "");
    SPACE_TRY_VOID(catalog_.sandboxes().Move(record, SandboxState::kRunning), "");
    return transaction.Commit();
  };
  auto stored = store();
  if (!stored) {
    record = before;
    return stored;
  }
  layers_->RemoveSnapshotFiles(snapshot_id);
  return stored;
}

std::optional<SandboxRecord> Node::FindWakeable(std::string_view id) {
  const auto found = live_.find(id);
  if (found == live_.end() || found->second->end_reason) {
    return std::nullopt;
  }
  const SandboxRecord& record = found->second->record;
  if (!record.auto_resume || ShownAs(record.state) != ShownState::kPaused) {
    return std::nullopt;
  }
  if (!record.snapshot_id.empty()) {  // empty while it pauses
    const auto snapshot = catalog_.snapshots().Find(record.snapshot_id);
    if (!snapshot || !*snapshot || !(*snapshot)->has_memory) {
      return std::nullopt;
    }
  }
  return record;
}

asio::awaitable<std::shared_ptr<Sandbox>> Node::Wake(std::string id) {
  const auto record = FindWakeable(id);
  if (!record) {
    co_return FindUsable(id);
  }
  ResumeSpec spec;
  spec.timeout_seconds = std::max(kWakeSeconds, record->timeout_seconds);
  const auto resumed = co_await Resume(record->team_id, id, spec);
  if (!resumed) {
    log::Warn("wake_failed", {{"sandbox_id", id}, {"error", resumed.error().message()}});
  }
  co_return FindUsable(id);
}

}  // namespace space
