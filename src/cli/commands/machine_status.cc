#include <boost/json.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

Result<int> RunThis(const Invocation& invocation) {
  SPACE_TRY(const machine::Settings settings, invocation.Settings(), "machine status");
  const auto running = machine::Running(settings);
  const machine::Layout layout(settings);
  if (invocation.arguments.Has("json")) {
    boost::json::object out = {{"running", running.has_value()}};
    if (running) {
      out["pid"] = running->pid;
      out["port"] = running->port;
      out["memoryBytes"] = running->memory_bytes;
      out["cpus"] = running->cpus;
      out["console"] = layout.console();
    }
    Print(boost::json::serialize(out) + "\n");
    return 0;
  }
  if (!running) {
    Print("not running\n");
    return 0;
  }
  Print("running, pid " + std::to_string(running->pid) + ", " + FormatSize(running->memory_bytes) +
        ", " + std::to_string(running->cpus) + " CPUs, port 127.0.0.1:" +
        std::to_string(running->port) + "\nconsole " + layout.console() + "\n");
  return 0;
}

}  // namespace

Command MachineStatus() {
  return {.name = "machine status",
          .summary = "Tell whether the emulated host runs",
          .usage = "[--json]",
          .options = {{"json", 0, "", "print one JSON object"}},
          .examples = {"space machine status", "space machine status --json"},
          .run = RunThis};
}

}  // namespace space::cli
