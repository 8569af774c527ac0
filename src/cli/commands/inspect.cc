#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunInspect(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "inspect needs one sandbox"), "inspect");
  const std::string id = invocation.arguments.words().front();
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "inspect");
  SPACE_TRY(boost::json::object sandbox, context->Run(context->api.Inspect(id)), "sandbox " + id);
  if (const auto* pid = sandbox.if_contains("vmmPid"); pid != nullptr && !sandbox.contains("pid")) {
    sandbox["pid"] = *pid;
  }
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(sandbox) + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : sandbox) {
    rows.push_back({std::string(key), JsonText(sandbox, key)});
  }
  Print(FormatTable(rows));
  return 0;
}

}  // namespace

Command Inspect() {
  return {.name = "inspect",
          .summary = "Show all that is known of a sandbox, also of a dead one",
          .usage = "[--json] SANDBOX",
          .options = {{"json", 0, "", "print one JSON object"}},
          .examples = {"space inspect $id", "space inspect --json $id | jq -r .state"},
          .run = RunInspect};
}

}  // namespace space::cli
