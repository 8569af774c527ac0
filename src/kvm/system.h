// /dev/kvm itself: what this host can do, and the making of VMs. Any thread.
#pragma once

#include <linux/kvm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "kvm/vm.h"

namespace space::kvm {

// CPUID leaves as KVM takes and gives them.
using CpuidTable = std::vector<kvm_cpuid_entry2>;

class System {
 public:
  // Takes an open /dev/kvm. kUnimplemented when its API version or a capability that we need is
  // missing; the text names the capability.
  static Result<System> Create(UniqueFd kvm);

  Result<Vm> CreateVm() const;
  // What the host can offer to guests; about 0.3 ms.
  Result<CpuidTable> SupportedCpuid() const;
  // Value of a capability, 0 when absent.
  int CheckExtension(int capability) const;
  size_t run_bytes() const { return run_bytes_; }

 private:
  System(UniqueFd kvm, size_t run_bytes) : kvm_(std::move(kvm)), run_bytes_(run_bytes) {}
  UniqueFd kvm_;
  size_t run_bytes_;  // size of each vCPU's shared page
};

}  // namespace space::kvm
