// How sandboxes end: asked for, by the clock, or by themselves.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/log.h"
#include "http/spawn.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

using std::chrono::milliseconds;

constexpr size_t kKeptLogBytes = 16 * 1024;
// After SIGKILL only a kernel that is stuck keeps a process.
constexpr milliseconds kAfterSigkill{10'000};
// Also how often logs are trimmed and jumps of the clock are noticed.
constexpr milliseconds kClockStep{5'000};
// A snapshot of a large guest to a slow disk, and its VM's end.
constexpr std::chrono::minutes kMoveLimit{11};
// A host whose disk is full may have room again after a while; what cannot be paused is ended.
constexpr int kAutoPauses = 10;
constexpr Micros kAutoPauseStep = 30 * kMicrosPerSecond;

// How a child of ours ended, which is reaped by this; empty text for an adopted process, which
// belongs to init. nullopt: it has not ended, or the kernel is not done with it (seen: the pidfd is
// readable, waitid has nothing yet).
std::optional<std::string> Reap(int pidfd) {
  pollfd entry = {pidfd, POLLIN, 0};
  if (::poll(&entry, 1, 0) != 1) {
    return std::nullopt;
  }
  siginfo_t info = {};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) != 0) {
    return errno == ECHILD ? std::optional(std::string()) : std::nullopt;
  }
  if (info.si_pid == 0) {
    return std::nullopt;
  }
  return (info.si_code == CLD_EXITED ? "exit code " : "signal ") + std::to_string(info.si_status);
}

}  // namespace

// Who ended it on purpose comes first, then what the VMM wrote, then how its process ended.
Node::DeathCause Node::FindDeathCause(const Sandbox& sandbox) {
  if (sandbox.end_reason) {
    return {*sandbox.end_reason, ""};
  }
  std::optional<wire::Exit> exit;
  if (const auto text = ReadFile(sandbox.files.exit_record()); text && !text->empty()) {
    if (auto decoded = wire::DecodeExitRecord(*text)) {
      exit = *std::move(decoded);
    }
  }
  if (!exit && sandbox.vmm != nullptr) {
    exit = sandbox.vmm->exit();
  }
  if (exit) {
    return {std::string(wire::ExitReasonName(exit->reason)), exit->detail};
  }
  const bool is_by_signal = sandbox.process_status.starts_with("signal");
  return {is_by_signal ? "vmm_killed" : "vmm_died",
          sandbox.process_status.empty() ? "space-vmm ended without a record"
                                         : "space-vmm ended by " + sandbox.process_status};
}

asio::awaitable<void> Node::EndProcess(SandboxPointer sandbox) {
  const std::function<bool()> is_ended = [sandbox] {
    return sandbox->process_ended || !sandbox->has_process();
  };
  if (!is_ended() && sandbox->vmm != nullptr) {
    const auto asked = co_await sandbox->vmm->Request(wire::KillRequest{}, {},
                                                      static_cast<int>(config_.kill_grace.count()));
    if (asked) {
      co_await WaitUntil(sandbox->changed, is_ended, config_.kill_grace);
    }
  }
  if (!is_ended()) {
    sandbox->Signal(SIGKILL);
    co_await WaitUntil(sandbox->changed, is_ended, kAfterSigkill);
  }
}

asio::awaitable<Result<void>> Node::End(SandboxPointer sandbox, std::string reason) {
  if (!sandbox->end_reason) {
    sandbox->end_reason = std::move(reason);
    sandbox->CutStreams();
    sandbox->changed.Notify();
    // Nobody wants what is being made of it; who has it in hands buries it.
    const SandboxState state = sandbox->record.state;
    if (state == SandboxState::kCreating || state == SandboxState::kPausing) {
      sandbox->Signal(SIGKILL);
    }
    // What changes its state now is finished first: a snapshot in progress stays whole.
    const std::function<bool()> is_still = [sandbox] {
      return sandbox->is_gone || !sandbox->is_moving();
    };
    co_await WaitUntil(sandbox->changed, is_still, kMoveLimit);
    if (sandbox->record.state == SandboxState::kPaused) {
      Bury(sandbox);
    } else if (sandbox->record.state == SandboxState::kRunning && !sandbox->is_gone) {
      SPACE_CO_TRY_VOID(catalog_.sandboxes().Move(sandbox->record, SandboxState::kStopping), "end");
      co_await EndProcess(sandbox);
    }
  }
  const std::function<bool()> is_gone = [sandbox] { return sandbox->is_gone; };
  if (!co_await WaitUntil(sandbox->changed, is_gone, config_.kill_grace + kAfterSigkill)) {
    co_return Fail(ErrorCode::kInternal, "process of the sandbox does not end", sandbox->record.id);
  }
  co_return Result<void>();
}

asio::awaitable<void> Node::WatchProcess(SandboxPointer sandbox) {
  std::optional<std::string> status;
  asio::steady_timer timer(executor_);
  while (!status) {
    const auto [error] = co_await sandbox->process().async_wait(
        asio::posix::stream_descriptor::wait_read, http::kNoThrow);
    if (error) {
      co_return;  // the node is going away; the sandbox stays
    }
    status = Reap(sandbox->process().native_handle());
    if (!status) {
      timer.expires_after(milliseconds(1));
      [[maybe_unused]] const auto waited = co_await timer.async_wait(http::kNoThrow);
    }
  }
  sandbox->process_status = *std::move(status);
  sandbox->process_ended = true;
  sandbox->DropProcess();
  sandbox->CutStreams();
  sandbox->changed.Notify();
  if (!sandbox->is_in_hands) {
    Bury(sandbox);
  }
}

asio::awaitable<void> Node::WatchClock(SandboxPointer sandbox) {
  const uint64_t mine = ++sandbox->clock;
  while (!sandbox->is_gone && sandbox->is_usable() && sandbox->clock == mine) {
    const Micros due = std::max(sandbox->record.end_at, sandbox->auto_pause_after);
    const milliseconds left{(due - Now()) / 1000};
    if (left.count() <= 0) {
      if (co_await AtItsEnd(sandbox)) {
        co_return;
      }
    }
    const Micros end_seen = sandbox->record.end_at;
    const std::function<bool()> is_changed = [&] {
      return sandbox->is_gone || !sandbox->is_usable() || sandbox->record.end_at != end_seen;
    };
    const milliseconds pause =
        left.count() <= 0 ? kClockStep : std::min(left + milliseconds(1), kClockStep);
    co_await WaitUntil(sandbox->changed, is_changed, pause);
    TrimLog(sandbox->files.vmm_log(), config_.vmm_log_bytes);
  }
}

// Its time is over. False when that is to be tried again.
asio::awaitable<bool> Node::AtItsEnd(SandboxPointer sandbox) {
  const SandboxRecord& record = sandbox->record;
  if (record.auto_pause && sandbox->failed_auto_pauses < kAutoPauses) {
    // Counted before: a pause that fails starts the next clock.
    ++sandbox->failed_auto_pauses;
    sandbox->auto_pause_after = Now() + kAutoPauseStep;
    const bool keeps_memory = record.auto_pause_keeps_memory;
    const auto paused = co_await PauseWith(sandbox, keeps_memory, Consent::kInsist);
    if (paused) {
      sandbox->failed_auto_pauses = 0;
      sandbox->auto_pause_after = 0;
    } else {
      sandbox->Tell(log::Level::kError, "auto_pause_failed",
                    {{"sandbox_id", record.id}, {"error", paused.error().message()}});
    }
    co_return sandbox->is_gone || paused.has_value();
  }
  const auto ended = co_await End(sandbox, "expired");
  if (!ended) {
    log::Error("expire_failed", {{"sandbox_id", record.id}, {"error", ended.error().message()}});
  }
  co_return true;
}

// Dead in the catalog, with all that it used; in one step.
Result<void> Node::StoreDead(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kFast), "bury");
  if (sandbox->is_stored) {
    SPACE_TRY_VOID(catalog_.sandboxes().Move(record, SandboxState::kDead), "bury");
    SPACE_TRY_VOID(catalog_.layers().Forget({LayerUser::Kind::kSandbox, record.id}), "bury");
  } else {
    record.state = SandboxState::kDead;
    SPACE_TRY_VOID(catalog_.sandboxes().Insert(record), "bury");
  }
  if (!record.snapshot_id.empty()) {
    SPACE_TRY_VOID(catalog_.layers().Forget({LayerUser::Kind::kSnapshot, record.snapshot_id}),
                   "bury");
    SPACE_TRY([[maybe_unused]] const bool was_there,
              catalog_.snapshots().Delete(record.snapshot_id), "bury");
  }
  return transaction.Commit();
}

void Node::Bury(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  if (sandbox->is_gone) {
    return;
  }
  if (record.death_reason.empty()) {
    auto [reason, detail] = FindDeathCause(*sandbox);
    record.death_reason = std::move(reason);
    record.death_detail = std::move(detail);
  }
  record.ended_at = Now();
  const bool is_own = sandbox->purpose != Sandbox::Purpose::kClient;
  if (!is_own) {
    sandbox->Tell(log::Level::kInfo, "sandbox_dead",
                  {{"sandbox_id", record.id},
                   {"reason", record.death_reason},
                   {"detail", record.death_detail}});
  }
  // Who was ended on purpose is looked at less, and there are many.
  const size_t kept = sandbox->end_reason ? kKeptLogBytes / 8 : kKeptLogBytes;
  record.last_serial_log = ReadTail(sandbox->files.serial_log(), kept);
  record.last_vmm_log = ReadTail(sandbox->files.vmm_log(), kept);
  if (sandbox->vmm != nullptr) {
    sandbox->vmm->Close();
  }
  launcher_.Release(record.id);
  const auto removed = sandbox->files.Remove();
  Result<LayerChains> paused;  // held until the catalog has let go of them
  if (!record.snapshot_id.empty()) {
    paused = layers_->Load({LayerUser::Kind::kSnapshot, record.snapshot_id});
  }
  const Result<void> moved = is_own ? Result<void>() : StoreDead(sandbox);
  if (!record.snapshot_id.empty()) {
    layers_->RemoveSnapshotFiles(record.snapshot_id);
  }
  sandbox->chains = {};
  sandbox->top = nullptr;
  sandbox->top_fd = UniqueFd();
  for (const Result<void>* step : {&removed, &moved}) {
    if (!*step) {
      log::Error("bury_failed", {{"sandbox_id", record.id}, {"error", step->error().message()}});
    }
  }
  sandbox->is_gone = true;
  for (const auto& [fingerprint, variant] : variants_) {
    std::erase(variant->idle, sandbox);
  }
  (is_own ? own_ : live_).erase(record.id);
  sandbox->changed.Notify();
}

asio::awaitable<void> Node::ForgetDeadLoop() {
  asio::steady_timer timer(executor_);
  for (;;) {
    const Micros retention = std::chrono::microseconds(config_.dead_retention).count();
    const auto forgotten = catalog_.sandboxes().ForgetDead(Now() - retention);
    if (!forgotten) {
      log::Error("forget_dead_failed", {{"error", forgotten.error().message()}});
    }
    timer.expires_after(
        std::min<std::chrono::seconds>(config_.dead_retention, std::chrono::seconds(60)));
    const auto [error] = co_await timer.async_wait(http::kNoThrow);
    if (error) {
      co_return;
    }
  }
}

}  // namespace space
