// After a restart: what the catalog says is matched with what runs.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"

namespace space {
namespace {

// Longer than a busy emulated host needs: what does not answer is ended.
constexpr int kStatusLimitMs = 20'000;

}  // namespace

asio::awaitable<Result<void>> Node::TakeOver(SandboxPointer sandbox) {
  SandboxRecord& record = sandbox->record;
  SPACE_CO_TRY(UniqueFd pidfd,
               OpenProcess(static_cast<pid_t>(record.vmm_pid), record.vmm_start_ticks), "adopt");
  sandbox->TakeProcess(std::move(pidfd));
  http::Spawn(executor_, WatchProcess(sandbox), "watch_process");
  SPACE_CO_TRY(sandbox->vmm, VmmClient::Connect(executor_, launcher_.ControlPath(record.id)),
               "adopt");
  SPACE_CO_TRY(const wire::StatusReply status, co_await sandbox->vmm->Status(kStatusLimitMs),
               "adopt");
  if (status.state != wire::VmState::kRunning && status.state != wire::VmState::kPaused) {
    co_return Fail(ErrorCode::kUnavailable, "the VM does not run");
  }
  SPACE_CO_TRY(sandbox->chains, layers_->Load({LayerUser::Kind::kSandbox, record.id}), "adopt");
  if (record.state == SandboxState::kSnapshotting || record.state == SandboxState::kPausing) {
    SPACE_CO_TRY_VOID(co_await UndoMove(sandbox), "adopt");
  } else if (status.state == wire::VmState::kPaused) {
    co_return Fail(ErrorCode::kUnavailable, "the VM stands still");
  }
  co_return Result<void>();
}

// A snapshot or pause that the restart cut short: the guest goes on. Whether its disk has the new
// top is what the VMM holds; the status call before has made sure that it is done with what it was
// told.
asio::awaitable<Result<void>> Node::UndoMove(SandboxPointer sandbox) {
  SandboxRecord& record = sandbox->record;
  if (!record.next_top.empty()) {
    SPACE_CO_TRY(LayerPointer top, layers_->Find(record.next_top), "adopt");
    SPACE_CO_TRY(const bool is_swapped, layers_->IsHeldByOthers(*top), "adopt");
    if (is_swapped) {
      SPACE_CO_TRY_VOID(layers_->Freeze(*sandbox->chains.root.back()), "adopt");
      sandbox->chains.root.push_back(std::move(top));
    }
  }
  if (record.state == SandboxState::kPausing) {
    SPACE_CO_TRY_VOID(co_await sandbox->vmm->Request(wire::ResumeRequest{}, {}, kStatusLimitMs),
                      "adopt");
    SPACE_CO_TRY_VOID(co_await PostUnfreeze(sandbox->vmm), "adopt");
  }
  SettleRunning(sandbox);
  co_return Result<void>();
}

// A VM that we know by its folder alone ends.
asio::awaitable<void> Node::EndStranger(std::string id) {
  const auto written = SandboxFiles(config_.data_dir, id).ReadProcess();
  if (!written) {
    co_return;
  }
  auto pidfd = OpenProcess(static_cast<pid_t>(written->first), written->second);
  if (!pidfd) {
    co_return;  // it has ended
  }
  auto stranger = std::make_shared<Sandbox>(executor_, config_.data_dir, SandboxRecord{});
  stranger->is_in_hands = true;
  stranger->TakeProcess(*std::move(pidfd));
  http::Spawn(executor_, WatchProcess(stranger), "watch_process");
  co_await EndProcess(stranger);
}

// No VM of its own is wanted: what a restart left of one ends, the snapshot stays.
asio::awaitable<void> Node::AdoptPaused(SandboxPointer sandbox) {
  SandboxRecord& record = sandbox->record;
  co_await EndStranger(record.id);
  launcher_.Release(record.id);
  Result<void> kept;
  if (record.state == SandboxState::kResuming) {
    kept = catalog_.sandboxes().Move(record, SandboxState::kPaused);
  }
  record.vmm_pid = 0;
  if (kept) {
    const auto snapshot = catalog_.snapshots().Find(record.snapshot_id);
    if (!snapshot || !*snapshot) {
      kept = Fail(ErrorCode::kNotFound, "the snapshot of the paused sandbox is missing");
    } else if (const auto image = LoadImage(**snapshot); !image) {
      kept = Fail(image.error());
    }
  }
  if (!kept) {
    record.death_reason = "snapshot_lost";
    record.death_detail = kept.error().message();
    Bury(sandbox);
  }
}

// A creation or a kill that the restart cut short is undone or finished; only what ran goes on.
asio::awaitable<void> Node::Adopt(SandboxRecord stored) {
  auto sandbox = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(stored));
  const SandboxRecord& record = sandbox->record;
  sandbox->is_stored = true;
  live_[record.id] = sandbox;
  if (record.state == SandboxState::kPaused || record.state == SandboxState::kResuming) {
    co_return co_await AdoptPaused(sandbox);
  }
  if (record.state == SandboxState::kCreating) {
    sandbox->end_reason = "create_interrupted";
  } else if (record.state == SandboxState::kStopping) {
    sandbox->end_reason = "killed";
  }
  sandbox->is_in_hands = true;
  const auto taken = co_await TakeOver(sandbox);
  if (taken && sandbox->is_usable() && !sandbox->process_ended) {
    sandbox->is_in_hands = false;
    sandbox->Tell(log::Level::kInfo, "sandbox_adopted",
                  {{"sandbox_id", record.id}, {"pid", record.vmm_pid}});
    http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
    co_return;
  }
  if (!taken) {
    log::Warn("sandbox_not_adopted",
              {{"sandbox_id", record.id}, {"error", taken.error().message()}});
  }
  sandbox->Signal(SIGKILL);
  const std::function<bool()> is_over = [sandbox] {
    return sandbox->process_ended || !sandbox->has_process();
  };
  co_await WaitUntil(sandbox->changed, is_over, std::chrono::seconds(10));
  Bury(sandbox);
}

asio::awaitable<void> Node::RemoveLeftovers() {
  const auto sockets = launcher_.Existing();
  const auto folders = SandboxFiles::Existing(config_.data_dir);
  for (const std::string& id : sockets ? *sockets : std::vector<std::string>()) {
    if (live_.contains(id)) {
      continue;
    }
    // A VMM that the catalog does not know: pooled, being made, or its row was lost.
    if (const auto client = VmmClient::Connect(executor_, launcher_.ControlPath(id))) {
      [[maybe_unused]] const auto killed = co_await (*client)->Request(
          wire::KillRequest{}, {}, static_cast<int>(config_.kill_grace.count()));
      (*client)->Close();
    }
    co_await EndStranger(id);
    launcher_.Release(id);
    log::Warn("leftover_removed", {{"socket", id}});
  }
  for (const std::string& id : folders ? *folders : std::vector<std::string>()) {
    if (live_.contains(id)) {
      continue;
    }
    co_await EndStranger(id);
    const auto removed = SandboxFiles(config_.data_dir, id).Remove();
    log::Warn("leftover_removed",
              {{"folder", id}, {"error", removed ? "" : removed.error().message()}});
  }
}

}  // namespace space
