#include "node/node.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "http/spawn.h"
#include "node/images.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr size_t kLogAnswerBytes = 256 * 1024;

}  // namespace

tl::unexpected<Error> NoSandbox(std::string_view id) {
  return Fail(ErrorCode::kNotFound,
              "Sandbox \"" + std::string(id) + "\" doesn't exist or you don't have access to it");
}

asio::awaitable<bool> WaitUntil(http::Event& event, const std::function<bool()>& is_done,
                                std::chrono::milliseconds limit) {
  struct Alarm {
    bool is_late = false;
    bool is_over = false;  // the waiting is: `event` may be gone
  };
  const auto alarm = std::make_shared<Alarm>();
  asio::steady_timer timer(co_await asio::this_coro::executor, limit);
  timer.async_wait([alarm, &event](const boost::system::error_code& error) {
    if (!error && !alarm->is_over) {
      alarm->is_late = true;
      event.Notify();
    }
  });
  bool is_cancelled = false;
  while (!is_done() && !alarm->is_late && !is_cancelled) {
    is_cancelled = !co_await event.Wait();
  }
  alarm->is_over = true;
  co_return is_done();
}

Node::Node(asio::any_io_executor executor, const Config& config, Catalog& catalog,
           Launcher& launcher)
    : executor_(std::move(executor)),
      config_(config),
      catalog_(catalog),
      launcher_(launcher),
      layers_(std::make_shared<LayerFolder>(config.data_dir, catalog)),
      creating_(std::make_shared<Crowd>(executor_)),
      starting_(std::make_shared<Crowd>(executor_)),
      starting_used_(std::make_shared<Crowd>(executor_)) {}

Node::~Node() {
  for (const auto& [id, vm] : own_) {
    vm->Signal(SIGKILL);
    launcher_.Release(id);
    [[maybe_unused]] const auto removed = vm->files.Remove();  // else the next start does it
  }
}

size_t Node::live_count() const {
  return static_cast<size_t>(std::count_if(live_.begin(), live_.end(), [](const auto& entry) {
    return entry.second->record.state != SandboxState::kPaused;
  }));
}

Result<void> Node::CheckRoomFor(const SandboxSize& size, const std::string& team_id) {
  const auto of_team = std::count_if(live_.begin(), live_.end(), [&](const auto& entry) {
    const SandboxRecord& record = entry.second->record;
    return record.team_id == team_id && record.state != SandboxState::kPaused;
  });
  if (!team_id.empty() && config_.team_sandboxes != 0 && of_team >= config_.team_sandboxes) {
    return Fail(ErrorCode::kOverQuota, "limits.team_sandboxes is reached: your team has " +
                                           std::to_string(of_team) + " sandboxes");
  }
  SPACE_TRY(HostUse use, ReadHostUse(config_.data_dir), "");
  use.sandboxes = live_count();
  use.starting = starting_->count + starting_used_->count;
  for (const auto& [id, sandbox] : live_) {
    if (sandbox->record.state != SandboxState::kPaused) {
      use.sandbox_memory_bytes += MiB(sandbox->record.memory_mib);
    }
  }
  return CheckRoom(config_, use, size);
}

Micros Node::Now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

asio::awaitable<Result<void>> Node::Start() {
  SPACE_CO_TRY_VOID(MakeDirectories(SandboxFiles::Root(config_.data_dir), 0700), "start node");
  SPACE_CO_TRY_VOID(layers_->Prepare(), "start node");
  SPACE_CO_TRY_VOID(catalog_.templates().Put(BaseTemplate(config_, Now())), "start node");
  SPACE_CO_TRY(std::vector<SandboxRecord> live, catalog_.sandboxes().Live(), "start node");
  for (SandboxRecord& record : live) {
    co_await Adopt(std::move(record));
  }
  co_await RemoveLeftovers();
  SPACE_CO_TRY_VOID(RemoveOldTemplates(), "start node");
  SPACE_CO_TRY_VOID(layers_->RemoveStrangers(), "start node");
  http::Spawn(executor_, ForgetDeadLoop(), "forget_dead");
  http::Spawn(executor_, SampleLoop(), "sample");
  if (config_.use_snapshots) {
    http::Spawn(executor_, UpkeepLoop(), "upkeep");
    if (config_.pool_size != 0) {
      http::Spawn(executor_, WarmUp(), "warm_up");
    }
  }
  co_return Result<void>();
}

Result<Node::SandboxPointer> Node::FindLive(const std::string& team_id, std::string_view id) {
  const auto found = live_.find(id);
  if (found == live_.end() || found->second->record.team_id != team_id) {
    return NoSandbox(id);
  }
  return found->second;
}

std::shared_ptr<Sandbox> Node::FindUsable(std::string_view id) {
  const auto found = live_.find(id);
  return found != live_.end() && found->second->is_usable() ? found->second : nullptr;
}

Result<SandboxRecord> Node::FindRunning(const std::string& team_id, std::string_view id) {
  SPACE_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (!sandbox->is_usable()) {
    return NoSandbox(id);
  }
  return sandbox->record;
}

Result<SandboxRecord> Node::FindShown(const std::string& team_id, std::string_view id) {
  SPACE_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (sandbox->end_reason || ShownAs(sandbox->record.state) == ShownState::kHidden) {
    return NoSandbox(id);
  }
  return sandbox->record;
}

std::optional<std::string> Node::FindId(
    const std::function<bool(const SandboxRecord&)>& is_meant) const {
  for (const auto& [id, sandbox] : live_) {
    if (!sandbox->end_reason && ShownAs(sandbox->record.state) != ShownState::kHidden &&
        is_meant(sandbox->record)) {
      return id;
    }
  }
  return std::nullopt;
}

Result<SandboxRecord> Node::FindAny(const std::string& team_id, std::string_view id) {
  SPACE_TRY(std::optional<SandboxRecord> record, catalog_.sandboxes().Find(id), "find");
  if (!record || record->team_id != team_id) {
    return NoSandbox(id);
  }
  return *std::move(record);
}

Result<SandboxRecord> Node::SetEnd(const SandboxPointer& sandbox, Micros end_at) {
  sandbox->record.end_at = end_at;
  SPACE_TRY_VOID(catalog_.sandboxes().Update(sandbox->record), "set timeout");
  sandbox->changed.Notify();
  return sandbox->record;
}

Result<SandboxRecord> Node::SetTimeout(const std::string& team_id, std::string_view id,
                                       int64_t seconds) {
  SPACE_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (!sandbox->is_usable()) {
    return NoSandbox(id);
  }
  return SetEnd(sandbox, Now() + seconds * kMicrosPerSecond);
}

Result<SandboxRecord> Node::ExtendTimeout(const std::string& team_id, std::string_view id,
                                          int64_t seconds) {
  SPACE_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (!sandbox->is_usable()) {
    return NoSandbox(id);
  }
  return SetEnd(sandbox, std::max(sandbox->record.end_at, Now() + seconds * kMicrosPerSecond));
}

Result<SandboxLogs> Node::Logs(const std::string& team_id, std::string_view id) {
  SPACE_TRY(const SandboxRecord record, FindAny(team_id, id), "");
  if (!IsLive(record.state)) {
    return SandboxLogs{record.last_serial_log, record.last_vmm_log};
  }
  const SandboxFiles files(config_.data_dir, record.id);
  return SandboxLogs{ReadTail(files.serial_log(), kLogAnswerBytes),
                     ReadTail(files.vmm_log(), kLogAnswerBytes)};
}

asio::awaitable<Result<void>> Node::Kill(std::string team_id, std::string id) {
  SPACE_CO_TRY(const SandboxPointer sandbox, FindLive(team_id, id), "");
  if (sandbox->end_reason) {
    co_return NoSandbox(id);
  }
  co_return co_await End(sandbox, "killed");
}

asio::awaitable<void> Node::KillAll() {
  // First all that take the request, then the waiting: their times do not add up.
  std::vector<SandboxPointer> all;
  for (const auto& [id, sandbox] : live_) {
    if (sandbox->record.state != SandboxState::kPaused) {  // those are for another day
      all.push_back(sandbox);
    }
  }
  for (const auto& [fingerprint, variant] : variants_) {
    variant->is_old = true;
    Drain(variant);
  }
  for (const SandboxPointer& sandbox : all) {
    http::Spawn(
        executor_,
        [](Node* self, SandboxPointer one) -> asio::awaitable<void> {
          [[maybe_unused]] const auto ended = co_await self->End(one, "shutdown");
        }(this, sandbox),
        "kill_all");
  }
  for (const SandboxPointer& sandbox : all) {
    const std::function<bool()> is_gone = [&] { return sandbox->is_gone; };
    co_await WaitUntil(sandbox->changed, is_gone, config_.kill_grace + std::chrono::seconds(15));
  }
  const std::vector<std::pair<std::string, SandboxPointer>> own(own_.begin(), own_.end());
  for (const auto& [id, vm] : own) {
    vm->Signal(SIGKILL);
    const std::function<bool()> is_gone = [&] { return vm->is_gone; };
    co_await WaitUntil(vm->changed, is_gone, config_.kill_grace + std::chrono::seconds(15));
  }
}

}  // namespace space
