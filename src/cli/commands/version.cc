#include "cli/commands/commands.h"

namespace space::cli {
namespace {

Result<int> RunVersion(const Invocation&) {
  Print("space " SPACE_VERSION "\n");
  return 0;
}

}  // namespace

Command Version() {
  return {.name = "version",
          .summary = "Print the version",
          .usage = "",
          .examples = {"space version", "space --version"},
          .run = RunVersion};
}

}  // namespace space::cli
