#include "base/log.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace space::log {
namespace {

struct Settings {
  std::string component = "space";
  Level lowest = Level::kInfo;
};

Settings& TheSettings() {
  static Settings settings;  // written once by Configure, before threads start
  return settings;
}

std::string_view LevelName(Level level) {
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warn", "error"};
  return kNames[static_cast<size_t>(level)];
}

// Length of the valid UTF-8 sequence at the start of `text`, 0 if there is none.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned first = byte(0);
  size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xbf;
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) length = 2;
  if (first >= 0xe0 && first <= 0xef) length = 3;
  if (first >= 0xf0 && first <= 0xf4) length = 4;
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  if (length == 0 || text.size() < length) return 0;
  for (size_t at = 1; at < length; ++at) {
    if (byte(at) < low || byte(at) > high) return 0;
    low = 0x80;
    high = 0xbf;
  }
  return length;
}

}  // namespace

std::string Timestamp() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts = {};
  ::gmtime_r(&now.tv_sec, &parts);
  std::array<char, 40> text;
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::array<char, 8> fraction;
  std::snprintf(fraction.data(), fraction.size(), ".%03dZ",
                static_cast<int>(now.tv_nsec / 1'000'000));
  return std::string(text.data(), size) + fraction.data();
}

void Configure(std::string_view component, Level lowest) {
  TheSettings().component = component;
  TheSettings().lowest = lowest;
}

std::string EscapeJson(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 8);
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) {
      out += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    const char first = text[0];
    if (first == '"' || first == '\\') {
      out.push_back('\\');
      out.push_back(first);
    } else if (static_cast<unsigned char>(first) < 0x20 || first == 0x7f) {
      std::array<char, 8> escape;
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(first));
      out += escape.data();
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string Line(Level level, std::string_view event, Fields fields) {
  std::string line = "{\"time\":\"" + Timestamp() + "\",\"level\":\"";
  line.append(LevelName(level)).append("\",\"component\":\"").append(TheSettings().component);
  line.append("\",\"event\":\"").append(event).append("\"");
  for (const Field& field : fields) {
    line.append(",\"").append(field.name).append("\":");
    if (field.is_number) {
      line.append(field.text);
    } else {
      line.append("\"").append(EscapeJson(field.text)).append("\"");
    }
  }
  line.append("}\n");
  return line;
}

void Write(Level level, std::string_view event, Fields fields) {
  if (level < TheSettings().lowest) {
    return;
  }
  const std::string line = Line(level, event, fields);
  // One write per line, so that lines of several threads do not mix; a failed log write is dropped.
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, line.data(), line.size());
}

bool Limiter::Allow(uint64_t& dropped) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const int64_t second = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  if (second_.exchange(second) != second) {
    in_second_ = 0;
  }
  if (in_second_.fetch_add(1) >= kPerSecond) {
    dropped_.fetch_add(1);
    return false;
  }
  dropped = dropped_.exchange(0);
  return true;
}

}  // namespace space::log
