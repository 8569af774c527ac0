// Whether this host's processor can be what a saved guest was promised.
#pragma once

#include "kvm/vcpu_state.h"

namespace space {

// `saved` is a vCPU's table, `host` what KVM supports here.
//   errors: kUnimplemented, naming the features that are missing ("avx512f", "leaf 7 ebx bit 22")
Result<void> CheckCpu(const kvm::CpuidTable& saved, const kvm::CpuidTable& host);

}  // namespace space
