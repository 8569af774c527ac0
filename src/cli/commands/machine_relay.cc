// Hidden: runs inside the emulated host.
#include "base/log.h"
#include "cli/commands/commands.h"
#include "machine/relay.h"

namespace space::cli {
namespace {

Result<int> RunThis(const Invocation&) {
  log::Configure("space-relay", log::Level::kInfo);
  SPACE_TRY_VOID(machine::RunRelay({}), "machine relay");
  return 0;
}

}  // namespace

Command MachineRelay() {
  return {.name = "machine-relay",
          .summary = "Join the emulated host's channels to its agent (runs inside it)",
          .usage = "",
          .examples = {"space machine-relay", "space machine-relay"},
          .run = RunThis,
          .is_hidden = true};
}

}  // namespace space::cli
