// Everything that KVM knows about one vCPU, as plain data: taken from a vCPU that stands still, put
// into a fresh one of another process. The order of the calls matters; vcpu_state.cc says why. Data
// from a file is foreign: KVM checks what it is given and refuses, the sizes are checked by us.
#pragma once

#include <linux/kvm.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"

namespace space::kvm {

// CPUID leaves as KVM takes and gives them.
using CpuidTable = std::vector<kvm_cpuid_entry2>;

// What this host has to save; the same for every vCPU. From System.
struct StateShape {
  std::vector<uint32_t> msrs;   // indices
  size_t xsave_bytes = 4096;    // of KVM_GET_XSAVE2, at least 4096
  bool has_tsc_offset = false;  // KVM_VCPU_TSC_OFFSET, Linux 5.16 and later
};

struct VcpuState {
  static constexpr size_t kMaxCpuid = 256;  // KVM_MAX_CPUID_ENTRIES
  static constexpr size_t kMaxMsrs = 1024;
  static constexpr size_t kMaxXsaveBytes = 64 << 10;

  CpuidTable cpuid;  // as promised to the guest when it was made
  kvm_mp_state mp_state = {};
  kvm_regs registers = {};
  kvm_sregs special = {};
  // 4096 to kMaxXsaveBytes; empty where KVM cannot give it (seen on a nested host) and the guest
  // uses no more than x87 and SSE, which `fpu` holds.
  std::vector<std::byte> xsave;
  kvm_fpu fpu = {};
  kvm_xcrs xcrs = {};
  kvm_debugregs debug = {};
  kvm_lapic_state apic = {};
  uint32_t tsc_khz = 0;             // 0: not known
  std::vector<kvm_msr_entry> msrs;  // those that the host could read
  kvm_vcpu_events events = {};
};

constexpr uint32_t kMsrTsc = 0x10;
constexpr uint32_t kMsrTscDeadline = 0x6e0;

// Of the whole machine, besides its vCPUs.
struct VmState {
  uint64_t clock_ns = 0;      // kvmclock
  kvm_irqchip chips[3] = {};  // PIC master, PIC slave, IOAPIC
};

// Where the guest's time stood when it was stopped.
struct GuestTime {
  uint64_t clock_ns = 0;
  std::vector<uint64_t> tsc;       // per vCPU
  std::vector<uint64_t> deadline;  // TSC_DEADLINE per vCPU; 0: none armed
};

// Whether an MSR of KVM's list is left out: performance counters (hidden from the guest), machine
// checks, VMX capabilities (hidden), Hyper-V's (not offered). Their writing is refused or has
// effects.
bool IsLeftOut(uint32_t msr);

}  // namespace space::kvm
