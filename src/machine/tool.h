// Running another program to its end, and finding one. Blocking.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/process.h"

namespace space::machine {

struct ToolResult {
  ExitStatus status;
  std::string output;  // standard output and error together, the last 64 KiB
};

// An absolute path for `name`: itself when it has a slash, else searched in PATH and the sbin
// folders, which are off the PATH of ordinary users.
//   errors: kNotFound (names the program and the Debian package that has it)
Result<std::string> FindProgram(const std::string& name, const std::string& package);

// kTimeout after `limit`, when it is killed. Input is given on standard input.
Result<ToolResult> RunTool(const std::string& program, std::vector<std::string> arguments,
                           std::string_view input, std::chrono::seconds limit);

}  // namespace space::machine
