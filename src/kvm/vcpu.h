// One virtual CPU. All calls from the thread that runs it; from another one before it first runs
// and while that thread stands still outside Run().
#pragma once

#include <linux/kvm.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "base/mapping.h"
#include "base/result.h"
#include "kvm/vcpu_state.h"
#include "memory/guest_memory.h"

namespace space::kvm {

// Why the guest stopped. Data spans lie in the vCPU's shared page: what is put into them before the
// next Run() is what the guest reads. `count` accesses of `size_bytes` each follow one another.
struct PortExit {
  uint16_t port = 0;
  bool is_write = false;
  uint32_t size_bytes = 0;
  uint32_t count = 0;
  std::span<std::byte> data;
};
struct MmioExit {
  GuestAddress at;
  bool is_write = false;
  std::span<std::byte> data;  // 1 to 8 bytes
};
struct HaltExit {};         // HLT without an in-kernel interrupt chip
struct TripleFaultExit {};  // KVM_EXIT_SHUTDOWN
struct ResetExit {};        // KVM_SYSTEM_EVENT_*
struct InterruptedExit {};  // the kick signal, or another one
struct FailureExit {
  std::string text;  // what KVM says, with the guest's rip and bytes there
};
using VcpuExit = std::variant<PortExit, MmioExit, HaltExit, TripleFaultExit, ResetExit,
                              InterruptedExit, FailureExit>;

class Vcpu {
 public:
  Vcpu(Vcpu&&) noexcept = default;
  Vcpu& operator=(Vcpu&&) noexcept = default;
  Vcpu(const Vcpu&) = delete;
  Vcpu& operator=(const Vcpu&) = delete;
  ~Vcpu() = default;

  // Enters the guest until it exits. Errors are KVM's refusal to run at all.
  Result<VcpuExit> Run();
  // While set, Run() completes what the last exit left half done (KVM finishes the instruction of a
  // port or MMIO access on the next entry) and returns InterruptedExit instead of running the
  // guest.
  void SetImmediateExit(bool is_set) { run().immediate_exit = is_set ? 1 : 0; }
  // `signal` must be blocked in the calling thread. It is let through only inside Run(), which then
  // returns InterruptedExit; a signal sent before Run() makes it return at once, so no kick is lost
  // and no handler is needed.
  Result<void> SetKickSignal(int signal) const;

  // CPUID first: what MSRs may be set depends on it (Linux 6.13 and later).
  Result<void> SetCpuid(const CpuidTable& table);
  Result<void> SetMsrs(std::span<const kvm_msr_entry> msrs) const;
  Result<kvm_regs> Registers() const;
  Result<void> SetRegisters(const kvm_regs& registers) const;
  Result<kvm_sregs> SpecialRegisters() const;
  Result<void> SetSpecialRegisters(const kvm_sregs& registers) const;
  Result<void> SetFpu(const kvm_fpu& fpu) const;
  // LINT0 = ExtINT, LINT1 = NMI, as firmware leaves them.
  Result<void> SetLocalInterrupts() const;

  // vcpu_state.cc. All vCPUs of the machine stand still, none half-way in an access.
  Result<VcpuState> SaveState(const StateShape& shape) const;
  // Into a vCPU that has not run.
  //   errors: kUnimplemented, naming what this host cannot do; else KVM's refusal of the data
  Result<void> RestoreState(const VcpuState& state, const StateShape& shape);
  Result<uint64_t> Msr(uint32_t index) const;
  Result<void> SetMsr(uint32_t index, uint64_t value) const;
  // Guest TSC minus (scaled) host TSC; only with StateShape::has_tsc_offset.
  Result<uint64_t> TscOffset() const;
  Result<void> SetTscOffset(uint64_t offset) const;
  // The guest's watchdogs must not take the pause for a lock-up: flag in its kvmclock page.
  Result<void> NotePause() const;

 private:
  friend class Vm;
  Vcpu(UniqueFd vcpu, Mapping run) : vcpu_(std::move(vcpu)), run_(std::move(run)) {}
  kvm_run& run() const { return *reinterpret_cast<kvm_run*>(run_.bytes().data()); }
  VcpuExit Decode();
  FailureExit Describe(std::string what) const;
  UniqueFd vcpu_;
  Mapping run_;
  CpuidTable cpuid_;  // as set
};

}  // namespace space::kvm
