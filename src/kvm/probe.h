// Whether a /dev/kvm can run an unmodified Linux at a useful speed. Some nested hosts open it,
// create VMs, and then interpret guest kernel code one instruction at a time: an unmodified kernel
// dies there on an instruction that the interpreter lacks. So a small guest is run, in ring 0 and
// long mode, that executes what a stock kernel uses, then a loop whose time is compared with ours.
// Takes well below a second on any host and never hangs: a timer interrupts the guest.
#pragma once

#include <cstdint>
#include <string>

#include "base/fd.h"

namespace space {

struct KvmVerdict {
  // The guest's loop may take this many times ours. Hardware gives 1.0-1.5; a host that is itself
  // emulated gives 1-3, as our loop is emulated too; an interpreter gives hundreds.
  static constexpr double kSlowestUsableRatio = 12;

  bool is_usable = false;
  std::string reason;        // one line for a person: why not, or how fast
  std::string details;       // per step, "int3: ok; xsave: ok; ..."
  double guest_loop_ns = 0;  // per iteration; 0 when the loop was not reached
  double host_loop_ns = 0;
};

KvmVerdict ProbeKvm(const UniqueFd& kvm);
// Opens it first; a missing or forbidden device is a verdict too.
KvmVerdict ProbeKvmAt(const std::string& path);

}  // namespace space
