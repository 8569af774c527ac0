// All commands, in the order of --help.
#pragma once

#include <vector>

#include "cli/command.h"

namespace space::cli {

const std::vector<Command>& Commands();

// Of a command's row, or of all commands.
std::string HelpText(const Command& command);
std::string OverviewText();

// The program: argv without its first word to an exit code.
int RunSpace(const std::vector<std::string>& words);

}  // namespace space::cli
