// Hidden: reads the emulated host's console for as long as QEMU lives.
#include <unistd.h>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "machine/console_log.h"

namespace space::cli {
namespace {

Result<int> RunThis(const Invocation& invocation) {
  if (invocation.arguments.words().size() != 1) {
    return Fail(ErrorCode::kInvalidArgument, "machine-console takes the path of the log");
  }
  SPACE_TRY_VOID(machine::CopyToLog(STDIN_FILENO, invocation.arguments.words().front(), MiB(2)),
                 "machine console");
  return 0;
}

}  // namespace

Command MachineConsole() {
  return {.name = "machine-console",
          .summary = "Keep the emulated host's console in a bounded log (started by machine start)",
          .usage = "FILE",
          .examples = {"space machine-console FILE", "space machine-console FILE"},
          .run = RunThis,
          .is_hidden = true};
}

}  // namespace space::cli
