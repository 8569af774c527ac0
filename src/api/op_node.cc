#include <unistd.h>

#include <array>

#include "api/api.h"
#include "api/operations.h"
#include "node/time_text.h"

namespace space {
namespace {

std::string HostName() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) {
    return {};
  }
  return name.data();
}

}  // namespace

OperationResult GetHealth(Api&, ApiRequest) {
  ApiResponse response;
  response.content_type = "text/plain; charset=utf-8";
  response.body = "Health check successful";
  co_return response;
}

OperationResult GetStatus(Api& api, ApiRequest request) {
  const Config& config = api.config();
  SPACE_CO_TRY(const HostUse use, ReadHostUse(config.data_dir), "status");
  SPACE_CO_TRY(const int64_t running, CountShown(api, request.team_id, ShownState::kRunning),
               "status");
  SPACE_CO_TRY(const int64_t paused, CountShown(api, request.team_id, ShownState::kPaused),
               "status");
  SPACE_CO_TRY(const int64_t creating,
               api.sandboxes().Count(request.team_id, SandboxState::kCreating), "status");
  json::object body;
  body["version"] = kSpaceVersion;
  body["startedAt"] = FormatTime(api.started_at());
  body["pid"] = ::getpid();
  body["host"] = {{"name", HostName()},
                  {"memoryBytes", use.memory_bytes},
                  {"availableMemoryBytes", use.available_memory_bytes},
                  {"freeDiskBytes", use.free_disk_bytes}};
  // Whether KVM is any good is found out by `space doctor`; here only whether it can be opened.
  body["kvm"] = {{"path", config.kvm_path},
                 {"accessible", ::access(config.kvm_path.c_str(), R_OK | W_OK) == 0}};
  body["sandboxes"] = {{"running", running},
                       {"paused", paused},
                       {"creating", creating},
                       {"liveOnNode", api.node().live_count()},
                       {"limit", config.max_sandboxes}};
  unsigned ready = 0;
  unsigned making = 0;
  const PoolState pool = api.node().pool_state();
  for (const PoolEntry& entry : pool.entries) {
    ready += entry.ready;
    making += entry.making;
  }
  body["pool"] = {{"ready", ready}, {"making", making}, {"templates", pool.entries.size()}};
  body["network"] = "none";
  co_return JsonResponse(200, json::serialize(body));
}

OperationResult GetPool(Api& api, ApiRequest) {
  const PoolState pool = api.node().pool_state();
  json::array templates;
  for (const PoolEntry& entry : pool.entries) {
    json::object one;
    one["templateID"] = entry.template_id;
    one["state"] = entry.state;
    one["ready"] = entry.ready;
    one["making"] = entry.making;
    one["low"] = entry.low;
    one["high"] = entry.high;
    one["memoryMB"] = entry.memory_mib;
    one["served"] = {
        {"pooled", entry.pooled}, {"onDemand", entry.on_demand}, {"booted", entry.booted}};
    templates.emplace_back(std::move(one));
  }
  json::object body;
  body["memoryBytes"] = pool.memory_bytes;
  body["memoryLimitBytes"] = pool.memory_limit_bytes;
  body["templates"] = std::move(templates);
  co_return JsonResponse(200, json::serialize(body));
}

OperationResult GetConfig(Api& api, ApiRequest) {
  ApiResponse response;
  response.content_type = "application/toml";
  response.body = PrintConfig(api.config());
  co_return response;
}

OperationResult Shutdown(Api& api, ApiRequest request) {
  const auto kill = request.target.Query("kill").value_or("false");
  if (kill != "true" && kill != "false") {
    co_return Fail(ErrorCode::kInvalidArgument, "kill must be true or false, not", kill);
  }
  if (kill == "true") {
    co_await api.node().KillAll();
  }
  api.RequestShutdown();
  json::object body;
  body["liveOnNode"] = api.node().live_count();
  co_return JsonResponse(200, json::serialize(body));
}

}  // namespace space
