// Fork: one snapshot to memory while the source goes on, and children restored from it. Their
// processes start while the snapshot is taken and wait for it.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "http/spawn.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int64_t kMaxForks = 100;

}  // namespace

Node::SandboxPointer Node::MakeChild(const SandboxRecord& source, const ForkSpec& spec) {
  SandboxRecord record = source;
  record.id = "i" + RandomLowerAlnum(20);
  record.state = SandboxState::kCreating;
  record.source_id = source.id;
  record.origin = "forked";
  record.last_measures.clear();
  record.created_at = Now();
  record.started_at = record.created_at;
  record.timeout_seconds = spec.timeout_seconds;
  record.end_at = record.created_at + spec.timeout_seconds * kMicrosPerSecond;
  record.envd_token = source.envd_token.empty() ? "" : RandomHex(20);
  record.traffic_token = source.traffic_token.empty() ? "" : RandomHex(20);
  record.vmm_pid = 0;
  record.vmm_start_ticks = 0;
  record.launch_us = record.hello_us = record.ready_us = 0;
  record.next_top.clear();
  record.snapshot_id.clear();
  auto child = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(record));
  child->is_in_hands = true;
  live_[child->record.id] = child;
  return child;
}

asio::awaitable<Result<ForkReport>> Node::Fork(std::string team_id, std::string id, ForkSpec spec) {
  if (spec.count < 1 || spec.count > kMaxForks) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "count must be from 1 to 100, not " + std::to_string(spec.count));
  }
  const Turn turn(creating_, kRestoreTurn);
  SPACE_CO_TRY(const SandboxPointer source, FindLive(team_id, id), "");
  if (source->end_reason) {
    co_return NoSandbox(id);
  }
  while (source->record.state == SandboxState::kSnapshotting) {
    SPACE_CO_TRY_VOID(co_await WaitUntilStill(source), "");
  }
  SandboxRecord& record = source->record;
  if (record.state != SandboxState::kRunning) {
    co_return Fail(
        ErrorCode::kConflict,
        "sandbox is " + std::string(SandboxStateName(record.state)) + " and cannot be forked", id);
  }
  // The first that does not fit fails the request; later ones fail alone.
  SPACE_CO_TRY_VOID(
      CheckRoomFor({record.vcpus, record.memory_mib, record.disk_mib}, record.team_id), "fork");
  const auto snapshot = std::make_shared<SnapshotWait>(executor_);
  http::Spawn(executor_, TakeBranch(source, snapshot), "branch");
  std::vector<SandboxPointer> children;
  std::vector<std::shared_ptr<ForkOutcome>> outcomes;
  for (int64_t at = 0; at < spec.count; ++at) {
    co_await asio::post(executor_, asio::use_awaitable);  // the snapshot's request goes first
    Result<void> room =
        CheckRoomFor({record.vcpus, record.memory_mib, record.disk_mib}, record.team_id);
    SandboxPointer child;
    if (room) {
      child = MakeChild(record, spec);
      room = PrepareVm(child);
    }
    children.push_back(child);
    outcomes.push_back(std::make_shared<ForkOutcome>(
        Fail(room ? Error(ErrorCode::kInternal, "fork was not made") : room.error())));
    if (!room && child != nullptr) {
      children.back() = nullptr;
      co_await Discard(child, room.error());
    }
  }
  const std::function<bool()> is_taken = [snapshot] { return snapshot->image.has_value(); };
  while (!is_taken()) {
    co_await WaitUntil(snapshot->changed, is_taken, std::chrono::minutes(11));
  }
  const Result<ImagePointer>& image = *snapshot->image;
  const auto starting = std::make_shared<Crowd>(executor_);
  for (size_t at = 0; at < children.size(); ++at) {
    if (children[at] == nullptr) {
      continue;
    }
    if (!image) {
      co_await Discard(children[at], image.error());
      continue;
    }
    ++starting->count;
    http::Spawn(executor_, StartChild(children[at], *image, outcomes[at], starting), "fork_child");
  }
  if (!image) {
    co_return Fail(Error(image.error()).While("fork"));
  }
  const std::function<bool()> are_done = [starting] { return starting->count == 0; };
  while (!are_done()) {
    co_await WaitUntil(starting->changed, are_done, std::chrono::minutes(11));
  }
  ForkReport report;
  report.measures = (*image)->record.measures;
  for (const auto& outcome : outcomes) {
    report.children.push_back(std::move(*outcome));
  }
  co_return report;
}

// The source is back to running, and known to stand on its new disk layers, before any child is.
asio::awaitable<void> Node::TakeBranch(SandboxPointer source, std::shared_ptr<SnapshotWait> wait) {
  SnapshotOrder order;
  order.is_in_memory = true;
  auto image = co_await TakeSnapshot(source, order);
  if (image) {
    source->record.last_measures = (*image)->record.measures;
  }
  if (source->record.state == SandboxState::kSnapshotting && !source->is_gone) {
    SettleRunning(source);
  }
  wait->image = std::move(image);
  wait->changed.Notify();
}

asio::awaitable<void> Node::StartChild(SandboxPointer child, ImagePointer image,
                                       std::shared_ptr<ForkOutcome> outcome,
                                       std::shared_ptr<Crowd> starting) {
  Result<void> started = co_await StartFrom(child, image, InitKind::kRestored);
  const auto guest_failed = std::make_shared<bool>(false);
  *outcome = co_await FinishCreate(child, std::move(started), guest_failed);
  --starting->count;
  starting->changed.Notify();
}

}  // namespace space
