// Times as RFC 3339 text in UTC. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "catalog/records.h"

namespace space {

// "2026-11-30T20:16:00.000001Z"
std::string FormatTime(Micros time);
// Any RFC 3339 time; digits beyond microseconds are cut off.
Result<Micros> ParseTime(std::string_view text);

}  // namespace space
