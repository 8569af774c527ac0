#include "api/log_entries.h"

#include <algorithm>
#include <array>
#include <utility>

#include "node/time_text.h"

namespace space {
namespace {

constexpr size_t kStampBytes = 24;  // 2026-10-01T12:00:00.123Z
constexpr std::array<std::string_view, 4> kLevels = {"debug", "info", "warn", "error"};

// Calls `take` with each line, without its end.
template <class Function>
void ForEachLine(std::string_view text, Function take) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (!line.empty()) {
      take(line);
    }
  }
}

std::string TextOf(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : json::serialize(value);
}

// A record of ours; false when the line is none.
bool ReadRecord(std::string_view line, LogEntry& entry) {
  const auto parsed = ParseJson(line);
  if (!parsed || !parsed->is_object()) {
    return false;
  }
  for (const auto& [key, value] : parsed->get_object()) {
    const std::string_view name(key.data(), key.size());
    std::string text = TextOf(value);
    if (name == "time") {
      entry.at = ParseTime(text).value_or(entry.at);
    } else if (name == "level") {
      entry.level = RankOfLevel(text) < 0 ? "info" : std::move(text);
    } else if (name == "component") {
      entry.logger = std::move(text);
    } else if (name == "event") {
      entry.message = std::move(text);
    } else {
      entry.fields[key] = std::move(text);
    }
  }
  return true;
}

// JSON takes no broken UTF-8 and nobody wants a terminal's controls.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char byte : text) {
    const bool is_plain = byte == '\t' || (byte >= ' ' && byte <= '~');
    shown += is_plain ? byte : '?';
  }
  return shown;
}

}  // namespace

std::vector<LogEntry> ReadLogEntries(const SandboxLogs& logs, Micros start) {
  std::vector<LogEntry> entries;
  Micros last = start;
  ForEachLine(logs.vmm, [&](std::string_view line) {
    LogEntry entry{last, "info", "space-vmm", "", {}};
    if (!ReadRecord(line, entry)) {
      entry.message = Shown(line);
    }
    last = entry.at;
    entries.push_back(std::move(entry));
  });
  last = start;
  ForEachLine(logs.serial, [&](std::string_view line) {
    const auto time = line.size() > kStampBytes && line[kStampBytes] == ' '
                          ? ParseTime(line.substr(0, kStampBytes))
                          : Result<Micros>(Fail(ErrorCode::kNotFound, "no time"));
    if (time) {
      last = *time;
      line.remove_prefix(kStampBytes + 1);
    }
    entries.push_back({last, "info", "console", Shown(line), {}});
  });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const LogEntry& a, const LogEntry& b) { return a.at < b.at; });
  return entries;
}

int RankOfLevel(std::string_view level) {
  const auto at = std::find(kLevels.begin(), kLevels.end(), level);
  return at == kLevels.end() ? -1 : static_cast<int>(at - kLevels.begin());
}

json::object LogEntryJson(const LogEntry& entry) {
  json::object fields = entry.fields;
  fields["logger"] = entry.logger;
  return {{"timestamp", FormatTime(entry.at)},
          {"level", entry.level},
          {"message", entry.message},
          {"fields", std::move(fields)}};
}

json::object LogLineJson(const LogEntry& entry) {
  json::object line = entry.fields;
  line["level"] = entry.level;
  line["logger"] = entry.logger;
  line["message"] = entry.message;
  return {{"timestamp", FormatTime(entry.at)}, {"line", json::serialize(line)}};
}

}  // namespace space
