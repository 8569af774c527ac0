#include "cli/command_table.h"

#include <algorithm>
#include <exception>

#include "cli/commands/commands.h"

namespace space::cli {
namespace {

const std::vector<OptionSpec> kGlobalOptions = {
    {"config", 0, "FILE",
     "configuration file (default: $SPACE_CONFIG, else /etc/space/config.toml)"},
    {"machine", 0, "auto|on|off",
     "run in the emulated host (default auto: when KVM is not usable)"},
    {"help", 'h', "", "this text"},
    {"version", 0, "", "print the version"},
};

bool HasAlias(const Command& command, std::string_view word) {
  std::string_view rest = command.aliases;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (rest.substr(0, end) == word) {
      return true;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

struct Found {
  const Command* command = nullptr;
  size_t words = 0;  // of the command line that name it
};

// "machine start" before "machine"; "sandbox run" is "run".
Found FindCommand(const std::vector<std::string>& words, size_t at) {
  size_t skipped = 0;
  if (words[at] == "sandbox" && at + 1 < words.size()) {
    skipped = 1;
  }
  const std::string& one = words[at + skipped];
  const std::string two =
      at + skipped + 1 < words.size() ? one + " " + words[at + skipped + 1] : one;
  for (const Command& command : Commands()) {
    if (command.name == two && two != one) {
      return {&command, skipped + 2};
    }
  }
  for (const Command& command : Commands()) {
    if (command.name == one || HasAlias(command, one)) {
      return {&command, skipped + 1};
    }
  }
  return {};
}

// "machine" alone lists "machine start" and so on.
std::string GroupText(const std::string& noun) {
  std::string text;
  for (const Command& command : Commands()) {
    if (!command.is_hidden && command.name.starts_with(noun + " ")) {
      text += "  space " + std::string(command.name) + " " + std::string(command.usage) +
              "\n      " + std::string(command.summary) + "\n";
    }
  }
  return text;
}

std::string Padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size() + 2), ' ');
  return text;
}

std::string OptionLine(const OptionSpec& option) {
  std::string left = option.letter != 0 ? std::string("-") + option.letter + ", " : "    ";
  left += "--" + std::string(option.name);
  if (!option.value_name.empty()) {
    left += " " + std::string(option.value_name);
  }
  return "  " + Padded(left, 30) + std::string(option.help) + "\n";
}

Result<int> RunWords(const std::vector<std::string>& words) {
  SPACE_TRY(const Arguments global, ParseArguments(kGlobalOptions, 1, words), "space");
  Invocation invocation;
  invocation.config_path = global.Value("config").value_or("");
  if (const auto mode = global.Value("machine")) {
    SPACE_TRY(invocation.mode_option, machine::ParseMode(*mode), "--machine");
  }
  std::vector<std::string> rest = global.words();
  if (global.Has("version")) {
    rest = {"version"};
  }
  if (global.Has("help") || rest.empty() || rest.front() == "help") {
    Print(OverviewText());
    return rest.empty() && !global.Has("help") ? kExitOurFailure : 0;
  }
  const Found found = FindCommand(rest, 0);
  if (found.command == nullptr) {
    if (const std::string group = GroupText(rest.front()); !group.empty()) {
      Print("Usage:\n" + group);
      return rest.size() > 1 && rest[1] == "--help" ? 0 : kExitOurFailure;
    }
    return Fail(ErrorCode::kInvalidArgument,
                "unknown command " + rest.front() + "; see space --help");
  }
  const Command& command = *found.command;
  std::vector<OptionSpec> options = command.options;
  options.push_back({"help", 'h', "", "this text"});
  const std::vector<std::string> own(rest.begin() + static_cast<std::ptrdiff_t>(found.words),
                                     rest.end());
  SPACE_TRY(invocation.arguments, ParseArguments(options, command.words_before_rest, own),
            std::string(command.name));
  if (invocation.arguments.Has("help")) {
    Print(HelpText(command));
    return 0;
  }
  return command.run(invocation);
}

}  // namespace

const std::vector<Command>& Commands() {
  static const std::vector<Command> all = {
      Up(),
      Down(),
      Status(),
      Env(),
      Run(),
      Create(),
      Exec(),
      Shell(),
      Ls(),
      Inspect(),
      Kill(),
      Pause(),
      Resume(),
      Fork(),
      SnapshotCreate(),
      SnapshotLs(),
      SnapshotRm(),
      Pool(),
      Cp(),
      Logs(),
      Stats(),
      Url(),
      TemplateLs(),
      TemplateRm(),
      KeyCreate(),
      KeyLs(),
      KeyRevoke(),
      Doctor(),
      MachineStart(),
      MachineStop(),
      MachineStatus(),
      MachineExec(),
      MachineShell(),
      ConfigShow(),
      Version(),
      Completion(),
      MachineRelay(),
      MachineConsole(),
  };
  return all;
}

std::string HelpText(const Command& command) {
  std::string text = std::string(command.summary) + "\n\nUsage: space " +
                     std::string(command.name) + (command.usage.empty() ? "" : " ") +
                     std::string(command.usage) + "\n";
  if (!command.aliases.empty()) {
    text += "Also: " + std::string(command.aliases) + "\n";
  }
  text += "\nOptions:\n";
  for (const OptionSpec& option : command.options) {
    text += OptionLine(option);
  }
  text += OptionLine({"help", 'h', "", "this text"});
  text += "\nExamples:\n";
  for (const std::string_view example : command.examples) {
    text += "  " + std::string(example) + "\n";
  }
  return text;
}

std::string OverviewText() {
  std::string text =
      "space: every task in its own microVM\n\nUsage: space [--config FILE] [--machine "
      "auto|on|off] "
      "COMMAND ...\n\nCommands:\n";
  for (const Command& command : Commands()) {
    if (!command.is_hidden) {
      text += "  " + Padded(std::string(command.name), 16) + std::string(command.summary) + "\n";
    }
  }
  text += "\nGlobal options:\n";
  for (const OptionSpec& option : kGlobalOptions) {
    text += OptionLine(option);
  }
  text +=
      "\n`space COMMAND --help` tells more. Exit codes: the command's own; 128 and the signal's "
      "number;\n125 for failures of space itself; 126 not executable; 127 command not found.\n";
  return text;
}

int RunSpace(const std::vector<std::string>& words) {
  const Result<int> code = RunWords(words);
  if (!code) {
    Say(code.error().message());
    return kExitOurFailure;
  }
  return *code;
}

}  // namespace space::cli
