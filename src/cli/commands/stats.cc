#include <boost/json.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

std::string Mebibytes(const boost::json::object& point, std::string_view key) {
  return std::to_string(JsonNumber(point, key) / static_cast<int64_t>(MiB(1)));
}

std::string Percent(const boost::json::object& point) {
  const boost::json::value* value = point.if_contains("cpuUsedPct");
  const double percent = value != nullptr && value->is_number() ? value->to_number<double>() : 0;
  const auto tenths = static_cast<int64_t>(percent * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " %";
}

std::vector<std::string> Row(const std::string& id, const boost::json::object& point) {
  return {id,
          Percent(point) + " of " + JsonText(point, "cpuCount"),
          Mebibytes(point, "memUsed") + " of " + Mebibytes(point, "memTotal") + " MiB",
          Mebibytes(point, "memCache") + " MiB",
          Mebibytes(point, "diskUsed") + " of " + Mebibytes(point, "diskTotal") + " MiB",
          JsonText(point, "timestamp")};
}

asio::awaitable<Result<std::vector<std::string>>> RunningIds(Context& context) {
  SPACE_CO_TRY(const auto list, co_await context.api.List(false), "list sandboxes");
  std::vector<std::string> ids;
  for (const boost::json::object& sandbox : list) {
    ids.push_back(JsonText(sandbox, "sandboxID"));
  }
  co_return ids;
}

asio::awaitable<Result<int>> Show(Context& context, std::vector<std::string> ids, bool as_json) {
  if (ids.empty()) {
    SPACE_CO_TRY(ids, co_await RunningIds(context), "");
  } else {
    for (const std::string& id : ids) {
      SPACE_CO_TRY([[maybe_unused]] const auto known, co_await context.api.Inspect(id),
                   "sandbox " + id);
    }
  }
  SPACE_CO_TRY(const boost::json::object points, co_await context.api.NewestMetrics(ids), "stats");
  if (as_json) {
    Print(boost::json::serialize(points) + "\n");
    co_return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"SANDBOX", "CPU", "MEMORY", "CACHE", "DISK", "AT"}};
  for (const std::string& id : ids) {
    const boost::json::value* point = points.if_contains(id);
    if (point != nullptr && point->is_object()) {
      rows.push_back(Row(id, point->get_object()));
    } else {
      rows.push_back({id, "-", "-", "-", "-", "not measured yet"});
    }
  }
  Print(FormatTable(rows));
  co_return 0;
}

Result<int> RunStats(const Invocation& invocation) {
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "stats");
  return context->Run(
      Show(*context, invocation.arguments.words(), invocation.arguments.Has("json")));
}

}  // namespace

Command Stats() {
  return {.name = "stats",
          .summary = "Show what sandboxes use, as they were last asked",
          .usage = "[--json] [SANDBOX...]",
          .options = {{"json", 0, "", "print one JSON object, by sandbox"}},
          .examples = {"space stats", "space stats --json $id | jq '.[].memUsed'"},
          .run = RunStats};
}

}  // namespace space::cli
