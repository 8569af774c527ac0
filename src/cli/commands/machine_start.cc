#include <unistd.h>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

Result<int> RunThis(const Invocation& invocation) {
  SPACE_TRY(const machine::Settings settings, invocation.Settings(), "machine start");
  machine::StartOptions options;
  options.programs = machine::ProgramFolder();
  options.progress = Say;
  SPACE_TRY(const machine::RunState state, machine::Start(settings, options), "machine start");
  Say("the emulated host runs (pid " + std::to_string(state.pid) + ", " +
      FormatSize(state.memory_bytes) + ", port 127.0.0.1:" + std::to_string(state.port) + ")");
  return 0;
}

}  // namespace

Command MachineStart() {
  return {.name = "machine start",
          .summary = "Start the emulated host (software emulation, for hosts without usable KVM)",
          .usage = "",
          .examples = {"space machine start", "space --config test.toml machine start"},
          .run = RunThis};
}

}  // namespace space::cli
