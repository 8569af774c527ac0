#include "base/units.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <limits>

namespace space {
namespace {

struct NumberAndUnit {
  uint64_t number;
  std::string unit;
};

Result<NumberAndUnit> Split(std::string_view text, std::string_view what) {
  NumberAndUnit result{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, result.number);
  if (error != std::errc{}) {
    return Fail(ErrorCode::kInvalidArgument, std::string("not a ") + std::string(what), text);
  }
  for (const char* at = rest; at != end; ++at) {
    result.unit.push_back(*at >= 'A' && *at <= 'Z' ? static_cast<char>(*at - 'A' + 'a') : *at);
  }
  return result;
}

}  // namespace

Result<uint64_t> ParseSize(std::string_view text) {
  SPACE_TRY(const NumberAndUnit parts, Split(text, "size"), "parse size");
  std::string_view unit = parts.unit;
  if (unit.ends_with("ib")) {
    unit.remove_suffix(2);
  } else if (unit.ends_with("b")) {
    unit.remove_suffix(1);
  }
  constexpr std::string_view kUnits = "kmgt";
  unsigned shift = 0;
  if (!unit.empty()) {
    const size_t at = unit.size() == 1 ? kUnits.find(unit[0]) : std::string_view::npos;
    if (at == std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument, "unknown unit of size (k, m, g or t)", text);
    }
    shift = static_cast<unsigned>(at + 1) * 10;
  }
  if (parts.number > (std::numeric_limits<uint64_t>::max() >> shift)) {
    return Fail(ErrorCode::kInvalidArgument, "size is too large", text);
  }
  return parts.number << shift;
}

Result<std::chrono::milliseconds> ParseDuration(std::string_view text) {
  SPACE_TRY(const NumberAndUnit parts, Split(text, "duration"), "parse duration");
  struct Unit {
    std::string_view name;
    uint64_t milliseconds;
  };
  constexpr std::array<Unit, 6> kUnits = {
      {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}}};
  for (const Unit& unit : kUnits) {
    if (parts.unit != unit.name) {
      continue;
    }
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    if (parts.number > kMax / unit.milliseconds) {
      return Fail(ErrorCode::kInvalidArgument, "duration is too long", text);
    }
    return std::chrono::milliseconds(static_cast<int64_t>(parts.number * unit.milliseconds));
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown unit of duration (ms, s, m, h or d)", text);
}

std::string FormatSize(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  const bool is_whole = value == static_cast<double>(static_cast<uint64_t>(value));
  std::array<char, 32> text;
  const int size = std::snprintf(text.data(), text.size(), is_whole ? "%.0f %s" : "%.1f %s", value,
                                 kNames[unit]);
  return std::string(text.data(), static_cast<size_t>(size));
}

}  // namespace space
