#include "node/time_text.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace space {
namespace {

// Takes `digits` digits and what follows them (0: nothing) off `text`.
bool Take(std::string_view& text, size_t digits, char follows, int& value) {
  if (text.size() < digits + (follows != 0 ? 1 : 0)) {
    return false;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + digits, value);
  if (error != std::errc() || end != text.data() + digits || value < 0) {
    return false;
  }
  text.remove_prefix(digits);
  if (follows == 0) {
    return true;
  }
  const bool is_right =
      text[0] == follows || (follows == 'T' && (text[0] == 't' || text[0] == ' '));
  text.remove_prefix(1);
  return is_right;
}

// ".123456789": microseconds.
int64_t TakeFraction(std::string_view& text) {
  if (text.empty() || text[0] != '.') {
    return 0;
  }
  text.remove_prefix(1);
  int64_t micros = 0;
  int64_t unit = kMicrosPerSecond / 10;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    micros += (text[0] - '0') * unit;
    unit /= 10;
    text.remove_prefix(1);
  }
  return micros;
}

// "Z", "+02:00": seconds east of UTC.
bool TakeZone(std::string_view& text, int64_t& seconds) {
  if (text == "Z" || text == "z") {
    text.remove_prefix(1);
    return true;
  }
  if (text.empty() || (text[0] != '+' && text[0] != '-')) {
    return false;
  }
  const int64_t sign = text[0] == '-' ? -1 : 1;
  text.remove_prefix(1);
  int hours = 0;
  int minutes = 0;
  if (!Take(text, 2, ':', hours) || !Take(text, 2, 0, minutes) || hours > 23 || minutes > 59) {
    return false;
  }
  seconds = sign * (hours * 3600 + minutes * 60);
  return text.empty();
}

}  // namespace

std::string FormatTime(Micros time) {
  const std::time_t seconds = static_cast<std::time_t>(time / kMicrosPerSecond);
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> whole;
  const size_t size = std::strftime(whole.data(), whole.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 16> fraction;
  std::snprintf(fraction.data(), fraction.size(), ".%06dZ",
                static_cast<int>(time % kMicrosPerSecond));
  return std::string(whole.data(), size) + fraction.data();
}

Result<Micros> ParseTime(std::string_view text) {
  std::string_view rest = text;
  tm parts = {};
  int year = 0;
  int month = 0;
  const bool has_date = Take(rest, 4, '-', year) && Take(rest, 2, '-', month) &&
                        Take(rest, 2, 'T', parts.tm_mday) && Take(rest, 2, ':', parts.tm_hour) &&
                        Take(rest, 2, ':', parts.tm_min) && Take(rest, 2, 0, parts.tm_sec);
  const bool in_range = year >= 1970 && month >= 1 && month <= 12 && parts.tm_mday >= 1 &&
                        parts.tm_mday <= 31 && parts.tm_hour <= 23 && parts.tm_min <= 59 &&
                        parts.tm_sec <= 60;
  int64_t zone = 0;
  const int64_t micros = has_date ? TakeFraction(rest) : 0;
  if (!has_date || !in_range || !TakeZone(rest, zone)) {
    return Fail(ErrorCode::kInvalidArgument, "not an RFC 3339 time", text);
  }
  parts.tm_year = year - 1900;
  parts.tm_mon = month - 1;
  return (static_cast<Micros>(::timegm(&parts)) - zone) * kMicrosPerSecond + micros;
}

}  // namespace space
