// The user's terminal. Standard descriptors only.
#pragma once

#include <termios.h>

#include <optional>

#include "base/result.h"
#include "cli/envd.h"

namespace space::cli {

bool IsTerminal(int fd);
// 80 by 24 when nobody knows.
TerminalSize SizeOfTerminal(int fd);

// Raw mode of standard input while it lives; the old mode comes back with its end.
class [[nodiscard]] RawTerminal {
 public:
  static Result<RawTerminal> Enter();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  RawTerminal(RawTerminal&& other) noexcept : before_(std::exchange(other.before_, std::nullopt)) {}
  RawTerminal& operator=(RawTerminal&&) = delete;
  ~RawTerminal();

 private:
  explicit RawTerminal(const termios& before) : before_(before) {}
  std::optional<termios> before_;
};

}  // namespace space::cli
