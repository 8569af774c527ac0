// What spaced asks of whoever starts child processes. Today that is a class in spaced
// (node/launcher.h); later the same message goes to space-slotd.
#pragma once

#include <cstdint>
#include <string>

namespace space::wire {

enum class Role : uint8_t { kVmm = 0 };

// Descriptors beside it are the child's, in order from 3: for kVmm only /dev/kvm (4); the launcher
// itself makes the listening control socket (3). Answered by a pidfd and the control socket's path.
struct LaunchRequest {
  Role role = Role::kVmm;
  std::string sandbox_id;
};

}  // namespace space::wire
