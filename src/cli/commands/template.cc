#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

std::string NameOf(const boost::json::object& entry) {
  const boost::json::value* names = entry.if_contains("names");
  if (names == nullptr || !names->is_array() || names->get_array().empty() ||
      !names->get_array().front().is_string()) {
    return "-";
  }
  return std::string(names->get_array().front().get_string());
}

Result<int> RunLs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "template ls takes no words"), "template ls");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "template ls");
  SPACE_TRY(const auto list, context->Run(context->api.Templates()), "list templates");
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(boost::json::array(list.begin(), list.end())) + "\n");
    return 0;
  }
  if (invocation.arguments.Has("quiet")) {
    for (const boost::json::object& entry : list) {
      Print(JsonText(entry, "templateID") + "\n");
    }
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"TEMPLATE", "NAME", "CPUS", "MEMORY", "DISK", "BUILDS", "SANDBOXES", "UPDATED"}};
  for (const boost::json::object& entry : list) {
    rows.push_back({JsonText(entry, "templateID"), NameOf(entry), JsonText(entry, "cpuCount"),
                    JsonText(entry, "memoryMB") + " MiB", JsonText(entry, "diskSizeMB") + " MiB",
                    JsonText(entry, "buildCount"), JsonText(entry, "spawnCount"),
                    JsonText(entry, "updatedAt")});
  }
  Print(FormatTable(rows));
  return 0;
}

}  // namespace

Command TemplateLs() {
  return {.name = "template ls",
          .summary = "List what sandboxes can be created from",
          .usage = "[OPTIONS]",
          .options = {{"quiet", 'q', "", "ids only"}, {"json", 0, "", "print one JSON list"}},
          .examples = {"space template ls", "space template ls --json | jq '.[].names'"},
          .run = RunLs};
}

}  // namespace space::cli
