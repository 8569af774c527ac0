#include <set>

#include "cli/command_table.h"
#include "cli/commands/commands.h"

namespace space::cli {
namespace {

std::set<std::string> FirstWords() {
  std::set<std::string> words;
  for (const Command& command : Commands()) {
    if (!command.is_hidden) {
      words.insert(std::string(command.name.substr(0, command.name.find(' '))));
    }
  }
  return words;
}

std::string Joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

// Second words of "machine", "key", "snapshot" and "config".
std::set<std::string> SecondWords(const std::string& noun) {
  std::set<std::string> words;
  for (const Command& command : Commands()) {
    if (!command.is_hidden && command.name.starts_with(noun + " ")) {
      words.insert(std::string(command.name.substr(noun.size() + 1)));
    }
  }
  return words;
}

std::string OptionWords(const Command& command) {
  std::string text = "--help";
  for (const OptionSpec& option : command.options) {
    text += " --" + std::string(option.name);
  }
  return text;
}

bool TakesSandbox(std::string_view name) {
  for (const std::string_view one :
       {"exec", "kill", "rm", "inspect", "shell", "logs", "pause", "resume", "fork"}) {
    if (name == one) {
      return true;
    }
  }
  return false;
}

std::string Bash() {
  std::string text =
      "# space COMMAND completion: eval \"$(space completion bash)\"\n"
      "_space() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\"\"\n"
      "  if (( COMP_CWORD == 1 )); then\n"
      "    words=\"" +
      Joined(FirstWords()) +
      "\"\n"
      "  else\n"
      "    case \"$command\" in\n";
  for (const std::string& noun : FirstWords()) {
    if (const auto seconds = SecondWords(noun); !seconds.empty()) {
      text += "      " + noun + ") (( COMP_CWORD == 2 )) && words=\"" + Joined(seconds) + "\" ;;\n";
    }
  }
  for (const Command& command : Commands()) {
    if (command.is_hidden || command.name.find(' ') != std::string_view::npos) {
      continue;
    }
    text += "      " + std::string(command.name) + ") words=\"" + OptionWords(command) + "\"";
    if (TakesSandbox(command.name)) {
      text += "; [[ $current == -* ]] || words=$(space ls -q 2>/dev/null)";
    }
    text += " ;;\n";
  }
  return text +
         "    esac\n"
         "  fi\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _space space\n";
}

// zsh runs bash completions by its own compatibility layer.
std::string Zsh() {
  return "#compdef space\nautoload -U +X bashcompinit && bashcompinit\n" + Bash();
}

std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    out += c == '\'' ? std::string("\\'") : std::string(1, c);
  }
  return out + "'";
}

std::string Fish() {
  std::string text = "# space completion fish | source\n";
  for (const Command& command : Commands()) {
    if (command.is_hidden) {
      continue;
    }
    const size_t blank = command.name.find(' ');
    const std::string first(command.name.substr(0, blank));
    if (blank == std::string_view::npos) {
      text += "complete -c space -n __fish_use_subcommand -f -a " + first + " -d " +
              Quoted(command.summary) + "\n";
    } else {
      text += "complete -c space -n __fish_use_subcommand -f -a " + first + "\n";
      text += "complete -c space -n '__fish_seen_subcommand_from " + first + "' -f -a " +
              std::string(command.name.substr(blank + 1)) + " -d " + Quoted(command.summary) + "\n";
    }
    for (const OptionSpec& option : command.options) {
      text += "complete -c space -n '__fish_seen_subcommand_from " + first + "' -l " +
              std::string(option.name) + " -d " + Quoted(option.help) + "\n";
    }
    if (TakesSandbox(command.name)) {
      text += "complete -c space -n '__fish_seen_subcommand_from " + first +
              "' -f -a '(space ls -q 2>/dev/null)'\n";
    }
  }
  return text;
}

Result<int> RunCompletion(const Invocation& invocation) {
  const auto& words = invocation.arguments.words();
  const std::string shell = words.size() == 1 ? words.front() : "";
  if (shell == "bash") {
    Print(Bash());
  } else if (shell == "zsh") {
    Print(Zsh());
  } else if (shell == "fish") {
    Print(Fish());
  } else {
    return Fail(ErrorCode::kInvalidArgument, "completion takes one of bash, zsh, fish");
  }
  return 0;
}

}  // namespace

Command Completion() {
  return {.name = "completion",
          .summary = "Print a completion script for a shell",
          .usage = "bash|zsh|fish",
          .examples = {"eval \"$(space completion bash)\"",
                       "space completion fish > ~/.config/fish/completions/space.fish"},
          .run = RunCompletion};
}

}  // namespace space::cli
