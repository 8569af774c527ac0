#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

asio::awaitable<Result<int>> KillAll(Context& context, std::vector<std::string> ids, bool is_all) {
  if (is_all) {
    SPACE_CO_TRY(const auto list, co_await context.api.List(false), "list sandboxes");
    for (const boost::json::object& sandbox : list) {
      ids.push_back(JsonText(sandbox, "sandboxID"));
    }
  }
  int failures = 0;
  for (const std::string& id : ids) {
    const auto killed = co_await context.api.Kill(id);
    // One that ended by itself meanwhile is what --all wanted.
    if (!killed && !(is_all && killed.error().code() == ErrorCode::kNotFound)) {
      Say("sandbox " + id + ": " + killed.error().message());
      ++failures;
      continue;
    }
    Print(id + "\n");
  }
  co_return failures == 0 ? 0 : kExitOurFailure;
}

Result<int> RunKill(const Invocation& invocation) {
  const bool is_all = invocation.arguments.Has("all");
  if (invocation.arguments.words().empty() != is_all) {
    return Fail(ErrorCode::kInvalidArgument,
                "kill needs sandboxes, or --all; see space kill --help");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "kill");
  return context->Run(KillAll(*context, invocation.arguments.words(), is_all));
}

}  // namespace

Command Kill() {
  return {.name = "kill",
          .aliases = "rm",
          .summary = "End sandboxes and remove them",
          .usage = "SANDBOX... | --all",
          .options = {{"all", 'a', "", "every sandbox of this key's team"}},
          .examples = {"space kill $id", "space kill --all"},
          .run = RunKill};
}

}  // namespace space::cli
