// What a command of `space` is: a row of the table in command_table.cc, with its code in a file of
// its own under commands/.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options.h"
#include "machine/settings.h"

namespace space::cli {

// Failures of SPACE itself; the guest's commands may use all other codes.
constexpr int kExitOurFailure = 125;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;
constexpr int kExitSignalBase = 128;

// What every command gets.
struct Invocation {
  Arguments arguments;
  std::string config_path;                   // of --config; empty: the usual one
  std::optional<machine::Mode> mode_option;  // of --machine
  // Read at first use: `version` works with a broken file.
  Result<machine::Settings> Settings() const;
};

struct Command {
  std::string_view name;          // "run", or two words: "key create"
  std::string_view aliases = {};  // separated by spaces
  std::string_view summary;       // one line
  std::string_view usage;         // what follows the name: "[OPTIONS] COMMAND [ARGUMENT...]"
  std::vector<OptionSpec> options = {};
  size_t words_before_rest = kOptionsAnywhere;
  std::vector<std::string_view> examples = {};  // two
  // The exit code, or an error that is printed and becomes 125.
  std::function<Result<int>(const Invocation&)> run = {};
  bool is_hidden = false;
};

// What guests and servers write may end here: a terminal shows their control characters as "?", in
// UTF-8 the C1 ones too. Line ends and tabs stay.
std::string ForTerminal(std::string_view text);
// Prints "space: text" to standard error, for a terminal.
void Say(const std::string& text);
// Writes all of it to standard output, as it is unless that is a terminal; the reader's going away
// ends it quietly.
void Print(std::string_view text);

}  // namespace space::cli
