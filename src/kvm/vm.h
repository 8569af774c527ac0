// One KVM virtual machine: its memory slots, interrupt chip and event wiring. Any thread; the calls
// that build the machine come from one.
//
// Order matters: memory slots before the interrupt chip. On Linux 6.x a slot that is set afterwards
// waits for a grace period, 7 ms instead of 0.1 (bench/floor shows it).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fd.h"
#include "base/result.h"
#include "kvm/vcpu.h"
#include "memory/guest_memory.h"

namespace space::kvm {

class Vm {
 public:
  // Makes every region of `memory` one slot. The memory must outlive the VM.
  Result<void> SetMemory(const GuestMemory& memory) const;
  // In-kernel PIC, IOAPIC and local APICs (no PIT), with KVM's own pages placed at `kTssAddress`.
  Result<void> CreateInterruptChip() const;
  Result<Vcpu> CreateVcpu(uint32_t id) const;

  // A guest write of `size_bytes` (4) with value `match` at `at` signals `event` instead of an
  // exit.
  Result<void> AddIoEvent(const UniqueFd& event, GuestAddress at, uint32_t match) const;
  // A signal on `event` pulses interrupt `gsi` (edge).
  Result<void> AddIrqEvent(const UniqueFd& event, uint32_t gsi) const;

  // Clock and interrupt chips; all vCPUs stand still. Restore: after the vCPUs', before devices
  // raise anything, and the clock again when the guest starts to run.
  Result<VmState> SaveState() const;
  Result<void> RestoreChips(const VmState& state) const;
  Result<uint64_t> ClockNs() const;  // kvmclock
  Result<void> SetClockNs(uint64_t clock_ns) const;

  // Three pages that KVM uses on Intel for real mode, and one for its identity map below them.
  static constexpr uint64_t kTssAddress = 0xfffbd000;
  static constexpr uint64_t kIdentityMapAddress = 0xfffbc000;

 private:
  friend class System;
  Vm(UniqueFd vm, size_t run_bytes) : vm_(std::move(vm)), run_bytes_(run_bytes) {}
  UniqueFd vm_;
  size_t run_bytes_;
};

}  // namespace space::kvm
