// One function per command file: its row of the table.
#pragma once

#include "cli/command.h"

namespace space::cli {

Command Up();
Command Down();
Command Status();
Command Env();
Command Run();
Command Create();
Command Exec();
Command Shell();
Command Ls();
Command Inspect();
Command Kill();
Command Cp();
Command Logs();
// What is in `now` and not in `seen`, two readings of a log whose older parts may be dropped.
std::string NewPartOfLog(const std::string& seen, const std::string& now);
Command Stats();
Command Url();
Command TemplateLs();
Command TemplateRm();
Command KeyCreate();
Command KeyLs();
Command KeyRevoke();
Command Pause();
Command Resume();
Command Fork();
Command SnapshotCreate();
Command SnapshotLs();
Command SnapshotRm();
Command Pool();
Command Doctor();
Command MachineStart();
Command MachineStop();
Command MachineStatus();
Command MachineExec();
Command MachineShell();
Command ConfigShow();
Command Version();
Command Completion();
Command MachineRelay();
Command MachineConsole();

}  // namespace space::cli
