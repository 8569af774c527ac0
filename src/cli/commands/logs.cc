#include <algorithm>
#include <chrono>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

constexpr std::chrono::milliseconds kFollowStep{500};
constexpr size_t kOverlapBytes = 1024;

asio::awaitable<Result<std::string>> Fetch(Context& context, std::string id, std::string source) {
  std::string target = "/space/v1/sandboxes/" + http::PercentEncode(id) +
                       "/logs?source=" + http::PercentEncode(source);
  SPACE_CO_TRY(http::SimpleResponse answer,
               co_await context.api.Ask("GET", std::move(target), std::nullopt), "sandbox " + id);
  co_return std::move(answer.body);
}

asio::awaitable<Result<int>> Show(Context& context, std::string id, std::string source,
                                  bool follows) {
  SPACE_CO_TRY(std::string seen, co_await Fetch(context, id, source), "");
  Print(seen);
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  while (follows) {
    SPACE_CO_TRY(const boost::json::object sandbox, co_await context.api.Inspect(id),
                 "sandbox " + id);
    SPACE_CO_TRY(std::string now, co_await Fetch(context, id, source), "");
    Print(NewPartOfLog(seen, now));
    seen = std::move(now);
    if (JsonText(sandbox, "state") == "dead") {
      Say("sandbox " + id + " is dead: " + JsonText(sandbox, "deathReason"));
      break;
    }
    timer.expires_after(kFollowStep);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
  co_return 0;
}

Result<int> RunLogs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "logs needs one sandbox"), "logs");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "logs");
  return context->Run(Show(*context, invocation.arguments.words().front(),
                           invocation.arguments.Value("source").value_or("serial"),
                           invocation.arguments.Has("follow")));
}

}  // namespace

std::string NewPartOfLog(const std::string& seen, const std::string& now) {
  if (now.starts_with(seen)) {
    return now.substr(seen.size());
  }
  // Its beginning was dropped, or its middle: what was seen last is looked for.
  const std::string last = seen.substr(seen.size() - std::min(seen.size(), kOverlapBytes));
  const size_t at = last.empty() ? std::string::npos : now.rfind(last);
  return at == std::string::npos ? now : now.substr(at + last.size());
}

Command Logs() {
  return {
      .name = "logs",
      .summary = "Show a sandbox's console, also of a dead one",
      .usage = "[-f] [--source serial|vmm] SANDBOX",
      .options = {{"follow", 'f', "", "go on with what is written, until it is dead"},
                  {"source", 0, "serial|vmm", "the guest's console (default) or the VMM's log"}},
      .examples = {"space logs -f $id", "space logs --source vmm $id"},
      .run = RunLogs};
}

}  // namespace space::cli
