// What CPUID tells each vCPU: the host's supported table, with topology of our own and without what
// this monitor does not offer.
#pragma once

#include <cstdint>

#include "kvm/system.h"

namespace space {

// vCPU `id` of `vcpus` (1 to 32): one package, one thread per core, local APIC id = id.
//   hidden: nested virtualisation, the performance counters, and KVM's asynchronous page faults
//           (the kernel would write guest memory behind the dirty-page scan: DESIGN 3.3)
kvm::CpuidTable CpuidFor(const kvm::CpuidTable& host, uint32_t id, uint32_t vcpus);

}  // namespace space
