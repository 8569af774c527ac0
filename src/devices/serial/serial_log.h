// Where the guest's serial output goes: a file that never grows beyond its limit, written at a
// bounded rate, since the guest decides what comes. The file is plain text: the first half of the
// limit holds what came first (the boot); behind it comes the newest, and each time the file is
// full everything behind the first half is replaced by a line that says so and the last 4 KiB. Any
// thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace space {

class SerialLog {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  using Stamp = std::function<std::string()>;
  static constexpr size_t kTailBytes = 4096;
  // The least limit: both halves must hold a tail.
  static constexpr uint64_t kMinLimitBytes = 32 << 10;
  // Sustained rate; bursts of one second's worth pass.
  static constexpr uint64_t kBytesPerSecond = 1 << 20;

  // `fd` is open for writing, with O_APPEND or at its start; `limit_bytes` is raised to the least.
  // With `stamp` each line of the file begins with what it gives at the line's first byte, and a
  // space; not the lines of the tail that is repeated when the file is cut.
  SerialLog(UniqueFd fd, uint64_t limit_bytes, Stamp stamp = {},
            Clock clock = std::chrono::steady_clock::now);
  SerialLog(const SerialLog&) = delete;
  SerialLog& operator=(const SerialLog&) = delete;
  ~SerialLog();  // writes what is buffered

  void Put(char byte);
  // Writes what is buffered; otherwise a line is written when it ends or is 512 bytes long.
  void Flush();

  // The last kTailBytes of output, whatever the rate limit dropped from the file.
  std::string tail() const;
  // Text after "Kernel panic - not syncing: " of the first such line, at most 200 bytes, printable;
  // empty when none was seen.
  std::string panic() const;
  uint64_t dropped_bytes() const;

 private:
  void FlushLocked();
  void WriteOut(std::string_view text);
  void TakeLine();
  bool Spend(uint64_t bytes);

  mutable std::mutex mutex_;
  UniqueFd fd_;
  uint64_t limit_bytes_;
  Stamp stamp_;
  Clock clock_;
  bool is_line_start_ = true;
  std::string line_;    // since the last newline, cut
  std::string buffer_;  // not yet in the file
  std::string tail_;    // up to 2 * kTailBytes, then cut
  std::string panic_;
  uint64_t file_bytes_ = 0;
  uint64_t dropped_bytes_ = 0;
  uint64_t dropped_reported_ = 0;
  uint64_t budget_bytes_ = kBytesPerSecond;
  std::chrono::steady_clock::time_point refilled_;
};

}  // namespace space
