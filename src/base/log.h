// One line of JSON per record on stderr: time, level, component, event, then fields. Any thread.
// No payloads, tokens or environment values. What a guest or client can trigger goes through
// SPACE_LOG_LIMITED, so that nobody can fill the journal.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace space::log {

enum class Level { kDebug, kInfo, kWarn, kError };

// A field: text is escaped, numbers are written bare.
struct Field {
  Field(std::string_view name_in, std::string_view value) : name(name_in), text(value) {}
  Field(std::string_view name_in, const std::string& value) : name(name_in), text(value) {}
  Field(std::string_view name_in, const char* value) : name(name_in), text(value) {}
  template <class Integer>
  requires std::is_integral_v<Integer> Field(std::string_view name_in, Integer value)
      : name(name_in), text(std::to_string(value)), is_number(true) {}

  std::string_view name;
  std::string text;
  bool is_number = false;
};
using Fields = std::initializer_list<Field>;

// Once, from main, before threads start. `component` is the program's name.
void Configure(std::string_view component, Level lowest);

// Now, as in every record: "2026-10-01T12:00:00.123Z".
std::string Timestamp();
// One record: a line of JSON with its end.
std::string Line(Level level, std::string_view event, Fields fields);
// To standard error, unless it is below the lowest level.
void Write(Level level, std::string_view event, Fields fields);
inline void Debug(std::string_view event, Fields fields = {}) {
  Write(Level::kDebug, event, fields);
}
inline void Info(std::string_view event, Fields fields = {}) { Write(Level::kInfo, event, fields); }
inline void Warn(std::string_view event, Fields fields = {}) { Write(Level::kWarn, event, fields); }
inline void Error(std::string_view event, Fields fields = {}) {
  Write(Level::kError, event, fields);
}

// Text as the inside of a JSON string (no quotes added); invalid UTF-8 becomes \ufffd.
std::string EscapeJson(std::string_view text);

// At most `kPerSecond` records a second per call site; tells how many were dropped.
class Limiter {
 public:
  static constexpr uint32_t kPerSecond = 10;
  // True when the record may be written; `dropped` is how many were not since the last one.
  bool Allow(uint64_t& dropped);

 private:
  std::atomic<int64_t> second_{0};
  std::atomic<uint32_t> in_second_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace space::log

#define SPACE_LOG_LIMITED(level, event, ...)                                        \
  do {                                                                              \
    static ::space::log::Limiter space_limiter;                                     \
    uint64_t space_dropped = 0;                                                     \
    if (space_limiter.Allow(space_dropped)) {                                       \
      ::space::log::Write(level, event, {__VA_ARGS__, {"dropped", space_dropped}}); \
    }                                                                               \
  } while (false)
