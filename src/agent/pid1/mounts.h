// Mounts of PID 1, before and after the switch to the user's root. None of them needs a program of
// the root file system, and directories that it lacks are made.
#pragma once

#include <string>

#include "base/result.h"

namespace space::agent::pid1 {

// /dev, /proc and /sys in the initramfs.
Result<void> MountEarly();
// Moves these into `root`, makes it "/" and deletes the initramfs, whose memory is then free.
Result<void> SwitchRoot(const std::string& root);
// /dev/pts, /dev/shm, /run, cgroup2 and the device nodes that udev would make. Failures are logged.
void MountLate();

// Mounts; `target` is made when it does not exist.
Result<void> Mount(const std::string& source, const std::string& target, const char* type,
                   unsigned long flags, const char* options = nullptr);

}  // namespace space::agent::pid1
