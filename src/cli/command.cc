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

void Say(const std::string& text) { (void)WriteFull(STDERR_FILENO, "space: " + text + "\n"); }

void Print(std::string_view text) { (void)WriteFull(STDOUT_FILENO, text); }

}  // namespace space::cli
