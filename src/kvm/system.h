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

class System {
 public:
  // Takes an open /dev/kvm. kUnimplemented when its API version or a capability that we need is
  // missing; the text names the capability.
  static Result<System> Create(UniqueFd kvm);

  Result<Vm> CreateVm() const;
  // What the host can offer to guests, and what there is to save of a vCPU here. Asked for once by
  // Create (0.3 ms), so that no restore waits for it.
  const CpuidTable& supported_cpuid() const { return cpuid_; }
  const StateShape& state_shape() const { return shape_; }
  // Value of a capability, 0 when absent.
  int CheckExtension(int capability) const;
  size_t run_bytes() const { return run_bytes_; }

 private:
  System(UniqueFd kvm, size_t run_bytes) : kvm_(std::move(kvm)), run_bytes_(run_bytes) {}
  Result<CpuidTable> AskCpuid() const;
  Result<StateShape> AskStateShape() const;
  UniqueFd kvm_;
  size_t run_bytes_;  // size of each vCPU's shared page
  CpuidTable cpuid_;
  StateShape shape_;
};

}  // namespace space::kvm
