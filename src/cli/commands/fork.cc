#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/progress.h"
#include "cli/sandbox_options.h"

namespace space::cli {
namespace {

asio::awaitable<Result<int>> ForkOne(Context& context, std::string id, int64_t count,
                                     int64_t seconds, bool as_json) {
  boost::json::object report;
  {
    const Progress progress(context.io.get_executor(), "forking sandbox " + id);
    SPACE_CO_TRY(report, co_await context.api.Fork(id, count, seconds), "fork sandbox " + id);
  }
  if (as_json) {
    Print(boost::json::serialize(report) + "\n");
  }
  const boost::json::value* results = report.if_contains("results");
  if (results == nullptr || !results->is_array()) {
    co_return Fail(ErrorCode::kInternal, "daemon's answer has no results");
  }
  int failures = 0;
  for (const boost::json::value& entry : results->get_array()) {
    const boost::json::object result =
        entry.is_object() ? entry.get_object() : boost::json::object();
    const boost::json::value* sandbox = result.if_contains("sandbox");
    if (sandbox != nullptr && sandbox->is_object()) {
      Print(as_json ? "" : JsonText(sandbox->get_object(), "sandboxID") + "\n");
      continue;
    }
    const boost::json::value* error = result.if_contains("error");
    Say("a copy of " + id + " failed: " +
        (error != nullptr && error->is_object() ? JsonText(error->get_object(), "message")
                                                : std::string("no reason was given")));
    ++failures;
  }
  co_return failures == 0 ? 0 : kExitOurFailure;
}

Result<int> RunFork(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "fork needs one sandbox"), "fork");
  int64_t count = 1;
  int64_t seconds = kDefaultLifeSeconds;
  if (const auto text = invocation.arguments.Value("count")) {
    SPACE_TRY(count, ReadCount("--count", *text), "fork");
  }
  if (const auto text = invocation.arguments.Value("timeout")) {
    SPACE_TRY(seconds, ReadSeconds("--timeout", *text), "fork");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "fork");
  return context->Run(ForkOne(*context, invocation.arguments.words().front(), count, seconds,
                              invocation.arguments.Has("json")));
}

}  // namespace

Command Fork() {
  return {.name = "fork",
          .summary = "Copy a running sandbox, memory and disk, and print the copies' ids",
          .usage = "[OPTIONS] SANDBOX",
          .options = {{"count", 'n', "COUNT", "copies, 1 to 100 (default: 1)"},
                      {"timeout", 0, "DURATION", "time to live of each (default: 1h)"},
                      {"json", 0, "", "print one JSON object, with the pause times"}},
          .examples = {"copy=$(space fork $id)",
                       "space fork -n 10 --timeout 10m $id | xargs -I{} space exec {} ./try.sh"},
          .run = RunFork};
}

}  // namespace space::cli
