#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunPool(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "pool takes no words"), "pool");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "pool");
  SPACE_TRY(const boost::json::object pool, context->Run(context->api.Pool()), "pool");
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(pool) + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"TEMPLATE", "STATE", "READY", "MAKING", "LOW", "HIGH", "MEMORY"}};
  if (const auto* templates = pool.if_contains("templates"); templates && templates->is_array()) {
    for (const boost::json::value& entry : templates->get_array()) {
      if (const boost::json::object* one = entry.if_object()) {
        rows.push_back({JsonText(*one, "templateID"), JsonText(*one, "state"),
                        JsonText(*one, "ready"), JsonText(*one, "making"), JsonText(*one, "low"),
                        JsonText(*one, "high"), JsonText(*one, "memoryMB") + " MiB"});
      }
    }
  }
  Print(FormatTable(rows));
  return 0;
}

}  // namespace

Command Pool() {
  return {.name = "pool",
          .summary = "Show the VMs that wait, restored and paused, to become sandboxes",
          .usage = "[--json]",
          .options = {{"json", 0, "", "print one JSON object"}},
          .examples = {"space pool", "space pool --json | jq '.templates[].ready'"},
          .run = RunPool};
}

}  // namespace space::cli
