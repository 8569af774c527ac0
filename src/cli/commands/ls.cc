#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

std::vector<std::string> Row(const boost::json::object& sandbox) {
  std::string state = JsonText(sandbox, "state");
  if (const std::string reason = JsonText(sandbox, "deathReason"); !reason.empty()) {
    state += " (" + reason + ")";
  }
  return {JsonText(sandbox, "sandboxID"),
          JsonText(sandbox, "templateID"),
          state,
          JsonText(sandbox, "cpuCount"),
          JsonText(sandbox, "memoryMB") + " MiB",
          JsonText(sandbox, "startedAt"),
          JsonText(sandbox, "endAt")};
}

Result<int> RunLs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "ls takes no words"), "ls");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "ls");
  SPACE_TRY(const auto list, context->Run(context->api.List(invocation.arguments.Has("all"))),
            "list sandboxes");
  if (invocation.arguments.Has("json")) {
    boost::json::array out(list.begin(), list.end());
    Print(boost::json::serialize(out) + "\n");
    return 0;
  }
  if (invocation.arguments.Has("quiet")) {
    for (const boost::json::object& sandbox : list) {
      Print(JsonText(sandbox, "sandboxID") + "\n");
    }
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"SANDBOX", "TEMPLATE", "STATE", "CPUS", "MEMORY", "STARTED", "ENDS"}};
  for (const boost::json::object& sandbox : list) {
    rows.push_back(Row(sandbox));
  }
  Print(FormatTable(rows));
  return 0;
}

}  // namespace

Command Ls() {
  return {.name = "ls",
          .aliases = "ps",
          .summary = "List sandboxes",
          .usage = "[OPTIONS]",
          .options = {{"all", 'a', "", "dead ones too"},
                      {"quiet", 'q', "", "ids only"},
                      {"json", 0, "", "print one JSON list"}},
          .examples = {"space ls", "space ls -a --json | jq '.[].state'"},
          .run = RunLs};
}

}  // namespace space::cli
