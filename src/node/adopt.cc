// After a restart: what the catalog says is matched with what runs.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "http/spawn.h"
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
  if (status.state != wire::VmState::kRunning || status.hello.empty()) {
    co_return Fail(ErrorCode::kUnavailable, "the VM does not run");
  }
  co_return Result<void>();
}

// A creation or a kill that the restart cut short is undone or finished; only what ran goes on.
asio::awaitable<void> Node::Adopt(SandboxRecord stored) {
  auto sandbox = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(stored));
  const SandboxRecord& record = sandbox->record;
  live_[record.id] = sandbox;
  if (record.state == SandboxState::kCreating) {
    sandbox->end_reason = "create_interrupted";
  } else if (record.state == SandboxState::kStopping) {
    sandbox->end_reason = "killed";
  }
  const auto taken = co_await TakeOver(sandbox);
  if (taken && record.state == SandboxState::kRunning && !sandbox->is_gone) {
    log::Info("sandbox_adopted", {{"sandbox_id", record.id}, {"pid", record.vmm_pid}});
    http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
    co_return;
  }
  if (!taken) {
    log::Warn("sandbox_not_adopted",
              {{"sandbox_id", record.id}, {"error", taken.error().message()}});
  }
  sandbox->Signal(SIGKILL);
  const std::function<bool()> is_over = [&] {
    return sandbox->process_ended || !sandbox->has_process();
  };
  co_await WaitUntil(sandbox->changed, is_over, std::chrono::seconds(10));
  Bury(sandbox);
}

asio::awaitable<void> Node::RemoveLeftovers() {
  const auto sockets = launcher_.Existing();
  for (const std::string& id : sockets ? *sockets : std::vector<std::string>()) {
    if (live_.contains(id)) {
      continue;
    }
    // A VMM that the catalog does not know: its row was lost with the power, or by hand.
    if (const auto client = VmmClient::Connect(executor_, launcher_.ControlPath(id))) {
      [[maybe_unused]] const auto killed =
          co_await (*client)->Request(wire::KillRequest{}, {}, kStatusLimitMs);
      (*client)->Close();
    }
    launcher_.Release(id);
    log::Warn("leftover_removed", {{"socket", id}});
  }
  const auto folders = SandboxFiles::Existing(config_.data_dir);
  for (const std::string& id : folders ? *folders : std::vector<std::string>()) {
    if (live_.contains(id)) {
      continue;
    }
    const auto removed = SandboxFiles(config_.data_dir, id).Remove();
    log::Warn("leftover_removed",
              {{"folder", id}, {"error", removed ? "" : removed.error().message()}});
  }
}

}  // namespace space
