// The whole of space-vmm behind its main: signals, event loop, control socket, until the VM ends.
#pragma once

#include <optional>

#include "base/fd.h"
#include "base/result.h"
#include "memory/page_scan.h"

namespace space {

// Blocks what the process takes by signalfd (SIGTERM, SIGINT, SIGHUP), SIGPIPE and the vCPUs' kick
// in the calling thread and all that it starts. First call of main.
void BlockSignals();

// Serves `listener` until the VM has ended or SIGTERM came (reason "killed"), and the reason is
// recorded. Returns at once with an error when the descriptors are unusable.
// `scan` was opened while the process could still do so (memory/page_scan.h); without it there are
// no snapshots.
Result<void> RunService(UniqueFd listener, UniqueFd kvm, std::optional<PageScan> scan);

}  // namespace space
