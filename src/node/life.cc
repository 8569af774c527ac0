// How sandboxes end: asked for, by the clock, or by themselves.
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/log.h"
#include "http/spawn.h"
#include "node/node.h"

namespace space {
namespace {

using std::chrono::milliseconds;

constexpr size_t kKeptLogBytes = 16 * 1024;
// After SIGKILL only a kernel that is stuck keeps a process.
constexpr milliseconds kAfterSigkill{10'000};
// Also how often logs are trimmed and jumps of the clock are noticed.
constexpr milliseconds kClockStep{5'000};

// Reaps a child of ours; an adopted process belongs to init, which does.
std::string ReapStatus(int pidfd) {
  siginfo_t info = {};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return {};
  }
  return (info.si_code == CLD_EXITED ? "exit code " : "signal ") + std::to_string(info.si_status);
}

// Who ended it on purpose comes first, then what the VMM wrote, then how its process ended.
void SetDeathReason(Sandbox& sandbox) {
  SandboxRecord& record = sandbox.record;
  if (sandbox.end_reason) {
    record.death_reason = *sandbox.end_reason;
    return;
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
    record.death_reason = wire::ExitReasonName(exit->reason);
    record.death_detail = exit->detail;
    return;
  }
  const bool is_by_signal = sandbox.process_status.starts_with("signal");
  record.death_reason = is_by_signal ? "vmm_killed" : "vmm_died";
  record.death_detail = sandbox.process_status.empty()
                            ? "space-vmm ended without a record"
                            : "space-vmm ended by " + sandbox.process_status;
}

}  // namespace

asio::awaitable<Result<void>> Node::End(SandboxPointer sandbox, std::string reason) {
  if (!sandbox->end_reason) {
    sandbox->end_reason = std::move(reason);
    sandbox->CutStreams();
    if (sandbox->record.state == SandboxState::kRunning) {
      SPACE_CO_TRY_VOID(catalog_.sandboxes().Move(sandbox->record, SandboxState::kStopping), "end");
    }
    sandbox->changed.Notify();
    const std::function<bool()> is_ended = [&] {
      return sandbox->process_ended || sandbox->is_gone;
    };
    if (sandbox->vmm != nullptr && sandbox->record.state == SandboxState::kStopping) {
      const auto asked = co_await sandbox->vmm->Request(
          wire::KillRequest{}, {}, static_cast<int>(config_.kill_grace.count()));
      if (asked) {
        co_await WaitUntil(sandbox->changed, is_ended, config_.kill_grace);
      }
    }
    if (!is_ended()) {
      sandbox->Signal(SIGKILL);
    }
  }
  const std::function<bool()> is_gone = [&] { return sandbox->is_gone; };
  if (!co_await WaitUntil(sandbox->changed, is_gone, config_.kill_grace + kAfterSigkill)) {
    co_return Fail(ErrorCode::kInternal, "process of the sandbox does not end", sandbox->record.id);
  }
  co_return Result<void>();
}

asio::awaitable<void> Node::WatchProcess(SandboxPointer sandbox) {
  const auto [error] = co_await sandbox->process().async_wait(
      asio::posix::stream_descriptor::wait_read, http::kNoThrow);
  if (error) {
    co_return;  // the node is going away; the sandbox stays
  }
  sandbox->process_status = ReapStatus(sandbox->process().native_handle());
  sandbox->process_ended = true;
  sandbox->DropProcess();
  sandbox->CutStreams();
  sandbox->changed.Notify();
  // While it is being created, its creator buries it.
  if (sandbox->record.state != SandboxState::kCreating) {
    Bury(sandbox);
  }
}

asio::awaitable<void> Node::WatchClock(SandboxPointer sandbox) {
  while (!sandbox->is_gone && !sandbox->end_reason) {
    const milliseconds left{(sandbox->record.end_at - Now()) / 1000};
    if (left.count() <= 0) {
      const auto ended = co_await End(sandbox, "expired");
      if (!ended) {
        log::Error("expire_failed",
                   {{"sandbox_id", sandbox->record.id}, {"error", ended.error().message()}});
      }
      co_return;
    }
    const Micros end_seen = sandbox->record.end_at;
    const std::function<bool()> is_changed = [&] {
      return sandbox->is_gone || sandbox->end_reason || sandbox->record.end_at != end_seen;
    };
    const milliseconds pause = std::min(left + milliseconds(1), kClockStep);
    co_await WaitUntil(sandbox->changed, is_changed, pause);
    TrimLog(sandbox->files.vmm_log(), config_.vmm_log_bytes);
  }
}

void Node::Bury(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  if (sandbox->is_gone) {
    return;
  }
  if (record.death_reason.empty()) {
    SetDeathReason(*sandbox);
  }
  record.ended_at = Now();
  if (!sandbox->end_reason) {
    record.last_serial_log = ReadTail(sandbox->files.serial_log(), kKeptLogBytes);
    record.last_vmm_log = ReadTail(sandbox->files.vmm_log(), kKeptLogBytes);
  }
  if (sandbox->vmm != nullptr) {
    sandbox->vmm->Close();
  }
  launcher_.Release(record.id);
  const auto removed = sandbox->files.Remove();
  const auto moved = catalog_.sandboxes().Move(record, SandboxState::kDead);
  for (const Result<void>* step : {&removed, &moved}) {
    if (!*step) {
      log::Error("bury_failed", {{"sandbox_id", record.id}, {"error", step->error().message()}});
    }
  }
  log::Info("sandbox_dead", {{"sandbox_id", record.id},
                             {"reason", record.death_reason},
                             {"detail", record.death_detail}});
  sandbox->is_gone = true;
  live_.erase(record.id);
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
