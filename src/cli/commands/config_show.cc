#include <unistd.h>

#include <map>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/daemon.h"
#include "machine/machine.h"
#include "machine/tool.h"

namespace space::cli {
namespace {

// The keys that the command line itself reads, as TOML.
std::string MachineText(const machine::Settings& settings) {
  const machine::MachineSettings& own = settings.machine;
  std::string text = "\n# Emulated host: read by `space`, not by the daemon.\n[machine]\n";
  text += "# auto, on or off: run where KVM is not usable, always, never.\nmode = \"" +
          std::string(machine::ModeName(own.mode)) + "\"\n";
  const std::string memory =
      own.memory_bytes == 0
          ? "# Half of the host's, at most 8 GiB, when absent.\n# memory = \"8GiB\"\n"
          : "# Memory of the machine.\nmemory = \"" + std::to_string(own.memory_bytes / MiB(1)) +
                "MiB\"\n";
  text += memory +
          "# Processors of the machine, 1 to 64. More than 1 is quicker, and its kernel may "
          "die.\ncpus = " +
          std::to_string(own.cpus) +
          "\n# Size of its sparse data disk when it is made.\ndisk = \"" +
          std::to_string(own.disk_bytes / MiB(1)) + "MiB\"\n# Program.\nqemu = \"" + own.qemu +
          "\"\n# Host files that appear in /opt/space/extra of the machine.\nextra_files = [";
  for (size_t i = 0; i < own.extra_files.size(); ++i) {
    text += (i == 0 ? "\"" : ", \"") + own.extra_files[i] + "\"";
  }
  return text + "]\n";
}

// One value alone, for scripts: of the keys that the command line itself reads.
Result<int> ShowOne(const machine::Settings& settings, const std::string& key) {
  const std::map<std::string, std::string> values = {
      {"data_dir", settings.data_dir},
      {"run_dir", settings.run_dir},
      {"images_dir", settings.images_dir},
      {"listen", settings.listen_host + ":" + std::to_string(settings.listen_port)},
      {"machine.mode", std::string(machine::ModeName(settings.machine.mode))}};
  const auto found = values.find(key);
  if (found == values.end()) {
    return Fail(ErrorCode::kInvalidArgument,
                "config show tells one key of data_dir, run_dir, "
                "images_dir, listen, machine.mode, not",
                key);
  }
  Print(found->second + "\n");
  return 0;
}

Result<int> RunShow(const Invocation& invocation) {
  SPACE_TRY(const machine::Settings settings, invocation.Settings(), "config show");
  if (!invocation.arguments.words().empty()) {
    return ShowOne(settings, invocation.arguments.words().front());
  }
  Print(
      "# " +
      (settings.is_from_file ? "From " + settings.path : "Defaults: there is no " + settings.path) +
      "\n");
  const std::string spaced = machine::ProgramFolder() + "/spaced";
  if (::access(spaced.c_str(), X_OK) != 0) {
    return Fail(ErrorCode::kNotFound, "the daemon's program is missing", spaced);
  }
  std::vector<std::string> arguments = {"--print-config"};
  if (settings.is_from_file) {
    SPACE_TRY(const std::string path, WriteDaemonConfig(settings), "config show");
    arguments.insert(arguments.end(), {"--config", path});
  }
  SPACE_TRY(const machine::ToolResult shown,
            machine::RunTool(spaced, std::move(arguments), "", std::chrono::seconds(20)),
            "config show");
  if (shown.status.by_signal || shown.status.value != 0) {
    return Fail(ErrorCode::kInvalidArgument, settings.path + ": " + shown.output);
  }
  Print(shown.output + MachineText(settings));
  return 0;
}

}  // namespace

Command ConfigShow() {
  return {.name = "config show",
          .summary = "Print the effective configuration, secrets masked",
          .usage = "[KEY]",
          .examples = {"space config show images_dir", "space --config test.toml config show"},
          .run = RunShow};
}

}  // namespace space::cli
