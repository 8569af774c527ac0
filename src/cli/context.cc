#include "cli/context.h"

#include <algorithm>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space::cli {

namespace {
constexpr std::chrono::minutes kKeepAlivePause{2};
constexpr int64_t kKeepAliveSeconds = 600;
}  // namespace

Result<std::unique_ptr<Context>> MakeContext(const Invocation& invocation) {
  SPACE_TRY(machine::Settings settings, invocation.Settings(), "start");
  SPACE_TRY(Endpoint endpoint, FindEndpoint(settings), "start");
  return std::make_unique<Context>(std::move(settings), std::move(endpoint));
}

asio::awaitable<void> KeepAlive(Api api, std::string id, std::shared_ptr<bool> is_over) {
  asio::steady_timer timer(co_await asio::this_coro::executor);
  while (!*is_over) {
    (void)co_await api.Refresh(id, kKeepAliveSeconds);
    timer.expires_after(kKeepAlivePause);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

asio::awaitable<Result<std::shared_ptr<EnvdTarget>>> FindTarget(Api api, std::string id) {
  auto sandbox = co_await api.Sandbox(id);
  if (sandbox && JsonText(*sandbox, "state") == "paused") {
    co_return Fail(ErrorCode::kConflict,
                   "sandbox " + id + " is paused; `space resume " + id + "` lets it go on");
  }
  if (sandbox) {
    co_return api.TargetOf(*sandbox);
  }
  if (sandbox.error().code() != ErrorCode::kNotFound) {
    co_return Fail(std::move(sandbox).error().While("sandbox " + id));
  }
  std::string fallback = "sandbox " + id + ": " + sandbox.error().message();
  std::string message = co_await DescribeCut(api, id, std::move(fallback));
  co_return Fail(ErrorCode::kNotFound, std::move(message));
}

asio::awaitable<std::string> DescribeCut(Api api, std::string id, std::string message) {
  const auto sandbox = co_await api.Inspect(id);
  const std::string reason = sandbox ? JsonText(*sandbox, "deathReason") : std::string();
  if (reason.empty()) {
    co_return message;
  }
  const std::string detail = JsonText(*sandbox, "deathDetail");
  co_return "sandbox " + id + " is dead: " + reason + (detail.empty() ? "" : ": " + detail);
}

Result<void> NeedWords(const Invocation& invocation, size_t count, const std::string& what) {
  if (invocation.arguments.words().size() == count) {
    return {};
  }
  return Fail(ErrorCode::kInvalidArgument, what + "; see --help");
}

std::string FormatTable(std::vector<std::vector<std::string>> rows) {
  std::vector<size_t> widths;
  for (auto& row : rows) {
    for (std::string& cell : row) {
      cell = ForTerminal(cell);
      std::replace(cell.begin(), cell.end(), '\n', '?');
      std::replace(cell.begin(), cell.end(), '\t', '?');
    }
  }
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 < row.size()) {
        text.append(widths[i] - row[i].size() + 3, ' ');
      }
    }
    text += '\n';
  }
  return text;
}

}  // namespace space::cli
