// The whole of space-vmm behind its main: signals, event loop, control socket, until the VM ends.
#pragma once

#include "base/fd.h"
#include "base/result.h"

namespace space {

// Blocks what the process takes by signalfd (SIGTERM, SIGINT, SIGHUP), SIGPIPE and the vCPUs' kick
// in the calling thread and all that it starts. First call of main.
void BlockSignals();

// Serves `listener` until the VM has ended or SIGTERM came (reason "killed"), and the reason is
// recorded. Returns at once with an error when the descriptors are unusable.
Result<void> RunService(UniqueFd listener, UniqueFd kvm);

}  // namespace space
