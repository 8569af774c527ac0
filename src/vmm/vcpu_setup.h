// The state in which a vCPU first runs. Spec: PVH boot protocol for the boot processor; the others
// wait inside KVM for the INIT and SIPI that the kernel sends.
#pragma once

#include "kvm/vcpu.h"
#include "memory/guest_memory.h"

namespace space {

// Common to all; CPUID is set already.
Result<void> SetUpVcpu(const kvm::Vcpu& vcpu);
// 32-bit protected mode at `entry`, paging off, ebx = start info.
Result<void> SetUpPvhEntry(const kvm::Vcpu& vcpu, GuestAddress entry, GuestAddress start_info);

}  // namespace space
