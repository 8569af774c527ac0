// From the kernel's call of /init in the initramfs to a running user's root file system. Runs
// before any thread or event loop exists, once.
#pragma once

#include <string>

#include "base/result.h"

namespace space::agent::pid1 {

struct BootedGuest {
  std::string root_device;     // "/dev/vda"
  std::string modules_device;  // empty when the host gave none
};

// Mounts the kernel's file systems, loads modules, finds the root disk, makes it "/" and frees the
// initramfs. Standard descriptors are open afterwards.
//   errors: whatever stops the boot; the caller reports it and ends the machine
Result<BootedGuest> BootGuest();

// What the user's programs expect but the host's first request does not need: modules disk, root
// file system grown to its disk, names, machine id. Failures are logged.
void FinishSetup(const BootedGuest& guest);

// Signals all processes to end, syncs, makes the root read-only and powers the machine off.
[[noreturn]] void PowerOff();

// Prints why to the console and the kernel log, then ends the machine with a kernel panic, which
// the host sees as a death reason.
[[noreturn]] void Die(const Error& why);

}  // namespace space::agent::pid1
