// The few words of QEMU's machine protocol (QMP) that stopping needs. Blocking.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace space::machine {

// Tells the QEMU behind the monitor socket to end itself now: disks are flushed, the guest is not
// asked.
Result<void> QuitQemu(const std::string& monitor_socket, std::chrono::milliseconds limit);

}  // namespace space::machine
