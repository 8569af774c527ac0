// One function per command file: its row of the table.
#pragma once

#include "cli/command.h"

namespace space::cli {

Command MachineStart();
Command MachineStop();
Command MachineStatus();
Command MachineRelay();
Command MachineConsole();

}  // namespace space::cli
