#include "cli/command.h"

#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace space::cli {

Result<machine::Settings> Invocation::Settings() const {
  SPACE_TRY(machine::Settings settings, machine::LoadSettings(config_path), "configuration");
  if (mode_option) {
    settings.machine.mode = *mode_option;
  }
  return settings;
}

std::string ForTerminal(std::string_view text) {
  std::string shown;
  shown.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = static_cast<unsigned char>(at + 1 < text.size() ? text[at + 1] : '\0');
    if (byte == '\r' && next == '\n') {
      continue;
    }
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {
      shown += '?';
      ++at;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f) {
      shown += '?';
    } else {
      shown += text[at];
    }
  }
  return shown;
}

void Say(const std::string& text) {
  (void)WriteFull(STDERR_FILENO, "space: " + ForTerminal(text) + "\n");
}

void Print(std::string_view text) {
  if (::isatty(STDOUT_FILENO) == 1) {
    (void)WriteFull(STDOUT_FILENO, ForTerminal(text));
  } else {
    (void)WriteFull(STDOUT_FILENO, text);
  }
}

}  // namespace space::cli
