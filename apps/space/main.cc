// The command line of SPACE.
#include <signal.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/command_table.h"

int main(int argc, char** argv) {
  // A reader that goes away shows as an error of write.
  ::signal(SIGPIPE, SIG_IGN);
  try {
    return space::cli::RunSpace(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& problem) {
    std::fprintf(stderr, "space: internal error: %s\n", problem.what());
    return 125;
  }
}
