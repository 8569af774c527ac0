// A layer file that is cut while guest memory is mapped from it: whoever touches such a page gets
// SIGBUS. That ends the VM with a reason, not by a crash without one. (vCPUs do not get the signal:
// KVM reports EFAULT, see vcpu_thread.cc.)
#pragma once

namespace space {

// From now on SIGBUS writes the exit record ("layer_lost ...") into `exit_record` and ends the
// process with exit code 1. The descriptor stays open. Once per process.
void EndOnLayerLoss(int exit_record);

}  // namespace space
