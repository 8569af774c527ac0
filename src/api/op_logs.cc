// Logs of sandboxes, the dead included, in E2B's two forms.
#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "api/api.h"
#include "api/log_entries.h"
#include "api/operations.h"
#include "api/sandbox_json.h"

namespace space {
namespace {

constexpr int64_t kMostEntries = 1000;
constexpr int64_t kLastMilli = std::numeric_limits<Micros>::max() / 1000;

Result<int64_t> ReadNumber(const http::Target& target, std::string_view name, int64_t otherwise,
                           int64_t most) {
  const auto text = target.Query(name);
  if (!text || text->empty()) {
    return otherwise;
  }
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < 0 || number > most) {
    return Fail(ErrorCode::kInvalidArgument, "validation error: " + std::string(name) +
                                                 " must be a number from 0 to " +
                                                 std::to_string(most));
  }
  return number;
}

Result<std::vector<LogEntry>> EntriesOf(Api& api, const ApiRequest& request) {
  SPACE_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_TRY(const SandboxRecord record, api.node().FindAny(request.team_id, id), "");
  SPACE_TRY(const SandboxLogs logs, api.node().Logs(request.team_id, id), "");
  return ReadLogEntries(logs, record.created_at);
}

void Shorten(std::vector<LogEntry>& entries, int64_t limit) {
  if (entries.size() > static_cast<size_t>(limit)) {
    entries.resize(static_cast<size_t>(limit));
  }
}

}  // namespace

OperationResult ListLogsV1(Api& api, ApiRequest request) {
  SPACE_CO_TRY(std::vector<LogEntry> entries, EntriesOf(api, request), "");
  SPACE_CO_TRY(const int64_t start, ReadNumber(request.target, "start", 0, kLastMilli), "");
  SPACE_CO_TRY(const int64_t limit, ReadNumber(request.target, "limit", kMostEntries, kMostEntries),
               "");
  std::erase_if(entries, [&](const LogEntry& entry) { return entry.at < start * 1000; });
  Shorten(entries, limit);
  json::array lines;
  json::array whole;
  for (const LogEntry& entry : entries) {
    lines.push_back(LogLineJson(entry));
    whole.push_back(LogEntryJson(entry));
  }
  const json::object answer = {{"logs", std::move(lines)}, {"logEntries", std::move(whole)}};
  co_return JsonResponse(200, json::serialize(answer));
}

OperationResult ListLogsV2(Api& api, ApiRequest request) {
  SPACE_CO_TRY(std::vector<LogEntry> entries, EntriesOf(api, request), "");
  const std::string_view direction = request.target.Query("direction").value_or("forward");
  const bool is_backward = direction == "backward";
  if (!is_backward && direction != "forward") {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "validation error: direction must be forward or backward");
  }
  SPACE_CO_TRY(const int64_t cursor,
               ReadNumber(request.target, "cursor", is_backward ? kLastMilli : 0, kLastMilli), "");
  SPACE_CO_TRY(const int64_t limit, ReadNumber(request.target, "limit", kMostEntries, kMostEntries),
               "");
  const int least = RankOfLevel(request.target.Query("level").value_or("debug"));
  if (least < 0) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "validation error: level must be debug, info, warn or error");
  }
  const std::string_view search = request.target.Query("search").value_or("");
  std::erase_if(entries, [&](const LogEntry& entry) {
    const bool is_outside = is_backward ? entry.at / 1000 > cursor : entry.at / 1000 < cursor;
    return is_outside || RankOfLevel(entry.level) < least ||
           entry.message.find(search) == std::string::npos;
  });
  if (is_backward) {
    std::reverse(entries.begin(), entries.end());
  }
  Shorten(entries, limit);
  json::array list;
  for (const LogEntry& entry : entries) {
    list.push_back(LogEntryJson(entry));
  }
  const json::object answer = {{"logs", std::move(list)}};
  co_return JsonResponse(200, json::serialize(answer));
}

}  // namespace space
