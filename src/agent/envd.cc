#include "agent/envd.h"

#include <algorithm>
#include <ctime>

#include "agent/access.h"
#include "agent/compose.h"
#include "agent/download.h"
#include "agent/metrics.h"
#include "agent/respond.h"
#include "agent/upload.h"
#include "base/log.h"
#include "wire/ports.h"

namespace space::agent {
namespace {

// The services of ServeRpc.
constexpr std::string_view kProcess = "process.Process";
constexpr std::string_view kFilesystem = "filesystem.Filesystem";

bool IsService(std::string_view name) { return name == kProcess || name == kFilesystem; }

bool IsInternal(std::string_view path) {
  const auto& all = wire::kInternalPaths;
  return std::find(all.begin(), all.end(), path) != all.end();
}

std::string EnvironmentJson(const std::map<std::string, std::string>& environment) {
  std::string json = "{";
  for (const auto& [name, value] : environment) {
    json += json.size() > 1 ? ",\"" : "\"";
    json += log::EscapeJson(name) + "\":\"" + log::EscapeJson(value) + "\"";
  }
  return json + "}";
}

}  // namespace

Envd::Envd(const asio::any_io_executor& executor, Settings settings, Guest guest)
    : settings_(std::move(settings)),
      guest_(std::move(guest)),
      processes_(executor),
      process_service_(processes_, settings_, guest_.freezer),
      filesystem_service_(pool_, settings_),
      life_cycle_(guest_, processes_, settings_, pool_) {}

asio::awaitable<void> Envd::Serve(http::Exchange& exchange) {
  const http::RequestHead& request = exchange.request();
  const auto target = http::ParseTarget(request.target);
  if (!target) {
    co_return co_await RespondRestError(exchange, 400, target.error().message());
  }
  if (request.method == "OPTIONS") {
    co_return co_await RespondPreflight(exchange);
  }
  if (target->path == "/health") {
    co_return co_await RespondEmpty(exchange, 204);
  }
  if (IsInternal(target->path)) {
    co_return co_await ServeInternal(exchange, target->path);
  }
  if (target->path == "/files") {
    co_return co_await ServeFiles(exchange, *target);
  }
  if (!HasValidToken(request, settings_)) {
    co_return co_await RespondRestError(exchange, 401,
                                        "unauthorized: wrong or missing access token");
  }
  if (target->segments.size() == 2 && IsService(target->segments[0])) {
    co_return co_await ServeRpc(exchange, *target);
  }
  co_await ServeRest(exchange, *target);
}

asio::awaitable<void> Envd::ServeInternal(http::Exchange& exchange, std::string_view path) {
  if (exchange.peer() != kHostPeer) {
    co_return co_await RespondRestError(exchange, 404, "not found");
  }
  if (exchange.request().method != "POST") {
    co_return co_await RespondRestError(exchange, 405, "use POST");
  }
  if (path == "/init" || path == "/freeze" || path == "/unfreeze") {
    co_return co_await life_cycle_.Serve(exchange, path);
  }
  co_await RespondRestError(exchange, 501, std::string(path) + " is not implemented");
}

asio::awaitable<void> Envd::ServeFiles(http::Exchange& exchange, const http::Target& target) {
  const http::RequestHead& request = exchange.request();
  const bool is_read = request.method == "GET" || request.method == "HEAD";
  if (!is_read && request.method != "POST") {
    co_return co_await RespondRestError(exchange, 405, "use GET or POST");
  }
  const auto access = CheckFileAccess(request, target, is_read ? "read" : "write", settings_,
                                      static_cast<int64_t>(std::time(nullptr)));
  if (!access) {
    co_return co_await RespondRestError(exchange, 401, access.error().message());
  }
  if (is_read) {
    co_await ServeDownload(exchange, target, settings_);
  } else {
    co_await ServeUpload(exchange, target, settings_);
  }
}

asio::awaitable<void> Envd::ServeRest(http::Exchange& exchange, const http::Target& target) {
  const bool is_get = exchange.request().method == "GET";
  if (is_get && target.path == "/envs") {
    co_return co_await RespondJson(exchange, EnvironmentJson(settings_.environment));
  }
  if (is_get && target.path == "/metrics") {
    co_return co_await RespondJson(exchange, MetricsJson(cpu_usage_.UsedPercent()));
  }
  if (exchange.request().method == "POST" && target.path == "/files/compose") {
    co_return co_await ServeCompose(exchange, pool_, settings_);
  }
  co_await RespondRestError(exchange, 404, "not found");
}

asio::awaitable<void> Envd::ServeRpc(http::Exchange& exchange, const http::Target& target) {
  auto call = co_await RpcCall::Begin(exchange);
  if (!call) {
    co_return;
  }
  if (target.segments[0] == kProcess) {
    co_return co_await process_service_.Serve(*call, target.segments[1]);
  }
  co_await filesystem_service_.Serve(*call, target.segments[1]);
}

}  // namespace space::agent
