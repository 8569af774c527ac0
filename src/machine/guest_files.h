// The scripts that the emulated host's init runs, as text. They are put on the space-bin disk,
// which is mounted read-only at /opt/space.
#pragma once

#include <string>

namespace space::machine {

// Starts the agent for `space machine exec`, the relay of its channels, and the daemon, which is
// started again when it ends.
std::string StartScript();
// Ends the daemon and its VMs, so that the data disk is whole.
std::string StopScript();

}  // namespace space::machine
