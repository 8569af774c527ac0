#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace space::cli {

bool IsTerminal(int fd) { return ::isatty(fd) == 1; }

TerminalSize SizeOfTerminal(int fd) {
  winsize size = {};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

Result<RawTerminal> RawTerminal::Enter() {
  termios before = {};
  if (::tcgetattr(STDIN_FILENO, &before) != 0) {
    return FailErrno("read the terminal's mode");
  }
  termios raw = before;
  ::cfmakeraw(&raw);
  if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0) {
    return FailErrno("set the terminal's mode");
  }
  return RawTerminal(before);
}

RawTerminal::~RawTerminal() {
  if (before_) {
    (void)::tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
  }
}

}  // namespace space::cli
