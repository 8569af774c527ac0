// The logs of one sandbox as E2B's clients take them (E2B.md 2.9): the records of its life and of
// its VMM, which are JSON, and the lines of the guest's console. What guest and VMM wrote is only
// quoted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "catalog/json.h"
#include "node/node.h"

namespace space {

struct LogEntry {
  Micros at = 0;
  std::string level;   // debug, info, warn, error
  std::string logger;  // "spaced", "space-vmm", "console"
  std::string message;
  json::object fields;  // texts
};

// Oldest first. A line without a time of its own has that of the line before it, the first ones
// `start`.
std::vector<LogEntry> ReadLogEntries(const SandboxLogs& logs, Micros start);

// 0 for debug to 3 for error; -1 for no such level.
int RankOfLevel(std::string_view level);
json::object LogEntryJson(const LogEntry& entry);  // SandboxLogEntry
json::object LogLineJson(const LogEntry& entry);   // {timestamp, line}, where line is JSON text

}  // namespace space
