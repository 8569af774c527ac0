// The probe's guest: machine code and the memory image around it. 64-bit mode, ring 0, identity
// mapped. It writes a step's number to kStepPort before each step, kLoopChunk after every
// kLoopCount rounds of the loop, without end.
#pragma once

#include <linux/kvm.h>

#include <cstdint>

#include "base/result.h"
#include "kvm/vcpu.h"
#include "memory/guest_memory.h"

namespace space::kvm {

constexpr uint16_t kStepPort = 0xe9;
constexpr uint8_t kStepInt3 = 1;
constexpr uint8_t kStepXsave = 2;
constexpr uint8_t kStepCmpxchg = 3;
constexpr uint8_t kStepLoop = 4;
constexpr uint8_t kLoopChunk = 5;
constexpr uint8_t kWrongResult = 6;  // an instruction ran, but not as the manual says

constexpr uint64_t kLoopCount = 50'000;
constexpr uint64_t kProbeMemoryBytes = 0x200000;

// Puts page tables, GDT, IDT and code into `memory` and points the vCPU at them. The vCPU's CPUID
// must be set (XSAVE is switched on in CR4).
Result<void> PrepareProbeGuest(const GuestMemory& memory, const Vcpu& vcpu);

// kLoopCount rounds of the same loop on the host.
void RunLoopOnHost();

}  // namespace space::kvm
