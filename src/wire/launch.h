// What spaced asks of whoever starts child processes. Today that is a class in spaced
// (node/launcher.h); later the same message goes to space-slotd.
#pragma once

#include <cstdint>
#include <string>

namespace space::wire {

enum class Role : uint8_t { kVmm = 0 };

// Descriptors beside it: first the child's log (its stderr), then those it finds from 4 on; for
// kVmm that is /dev/kvm. The launcher itself makes the listening control socket, descriptor 3.
// Answered by a pidfd, the pid, and the control socket's path.
struct LaunchRequest {
  Role role = Role::kVmm;
  std::string sandbox_id;
};

}  // namespace space::wire
