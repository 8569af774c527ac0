#include "cli/commands/commands.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

Result<int> RunThis(const Invocation& invocation) {
  SPACE_TRY(const machine::Settings settings, invocation.Settings(), "machine stop");
  SPACE_TRY(const machine::StopWay way, machine::Stop(settings), "machine stop");
  switch (way) {
    case machine::StopWay::kNotRunning:
      Say("the emulated host does not run");
      break;
    case machine::StopWay::kClean:
      Say("the emulated host has stopped");
      break;
    case machine::StopWay::kQuit:
      Say("the emulated host did not answer; QEMU was ended");
      break;
    case machine::StopWay::kKilled:
      Say("the emulated host was killed");
      break;
  }
  return 0;
}

}  // namespace

Command MachineStop() {
  return {.name = "machine stop",
          .summary = "Stop the emulated host and every sandbox in it",
          .usage = "",
          .examples = {"space machine stop", "space machine stop && space machine start"},
          .run = RunThis};
}

}  // namespace space::cli
