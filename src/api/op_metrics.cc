// What sandboxes use (E2B.md 2.9).
#include <charconv>
#include <limits>
#include <utility>

#include "api/api.h"
#include "api/operations.h"
#include "node/time_text.h"

namespace space {
namespace {

constexpr size_t kMaxIds = 100;

json::object MetricJson(const MetricPoint& point) {
  return {{"timestamp", FormatTime(point.at)}, {"timestampUnix", point.at / kMicrosPerSecond},
          {"cpuCount", point.cpu_count},       {"cpuUsedPct", point.cpu_used_percent},
          {"memUsed", point.mem_used},         {"memTotal", point.mem_total},
          {"memCache", point.mem_cache},       {"diskUsed", point.disk_used},
          {"diskTotal", point.disk_total}};
}

// Unix seconds of a query parameter.
Result<Micros> ReadSeconds(const http::Target& target, std::string_view name, Micros otherwise) {
  const auto text = target.Query(name);
  if (!text || text->empty()) {
    return otherwise;
  }
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (error != std::errc() || end != text->data() + text->size() || seconds < 0 ||
      seconds > std::numeric_limits<Micros>::max() / kMicrosPerSecond) {
    return Fail(ErrorCode::kInvalidArgument,
                "validation error: " + std::string(name) + " must be a unix time in seconds");
  }
  return seconds * kMicrosPerSecond;
}

}  // namespace

OperationResult GetSandboxMetrics(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const Micros from, ReadSeconds(request.target, "start", 0), "");
  SPACE_CO_TRY(const Micros to,
               ReadSeconds(request.target, "end", std::numeric_limits<Micros>::max()), "");
  if (from > to) {
    co_return Fail(ErrorCode::kInvalidArgument, "validation error: start must not be after end");
  }
  SPACE_CO_TRY(const SandboxRecord record, api.node().FindAny(request.team_id, id), "");
  SPACE_CO_TRY(const std::vector<MetricPoint> points,
               api.node().catalog().metrics().List(record.id, from, to), "");
  json::array list;
  for (const MetricPoint& point : points) {
    list.push_back(MetricJson(point));
  }
  co_return JsonResponse(200, json::serialize(list));
}

OperationResult GetManyMetrics(Api& api, ApiRequest request) {
  std::string_view rest = request.target.Query("sandbox_ids").value_or("");
  if (rest.empty()) {
    co_return Fail(ErrorCode::kInvalidArgument, "validation error: sandbox_ids is missing");
  }
  json::object found;
  for (size_t count = 0; !rest.empty(); ++count) {
    if (count == kMaxIds) {
      co_return Fail(ErrorCode::kInvalidArgument,
                     "validation error: sandbox_ids may name 100 sandboxes at most");
    }
    const size_t comma = std::min(rest.find(','), rest.size());
    SPACE_CO_TRY(const std::string id, SandboxIdOf(std::string(rest.substr(0, comma))), "");
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto record = api.node().FindAny(request.team_id, id);
    if (!record) {
      continue;  // those of others are none
    }
    SPACE_CO_TRY(const std::optional<MetricPoint> point,
                 api.node().catalog().metrics().Newest(record->id), "");
    if (point) {
      found[record->id] = MetricJson(*point);
    }
  }
  co_return JsonResponse(200, json::serialize(json::object{{"sandboxes", std::move(found)}}));
}

}  // namespace space
