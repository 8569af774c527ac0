#include "vmm/vcpu_setup.h"

#include <array>

namespace space {
namespace {

constexpr uint32_t kMsrMiscEnable = 0x1a0;
constexpr uint64_t kFastStrings = 1;
constexpr uint32_t kMsrMtrrDefaultType = 0x2ff;
constexpr uint64_t kMtrrWriteBack = 0x806;  // enabled, write-back

constexpr uint64_t kCr0ProtectedMode = 0x11;  // ET, PE
constexpr uint16_t kFpuControlAtReset = 0x37f;
constexpr uint32_t kMxcsrAtReset = 0x1f80;

kvm_segment Segment(uint8_t type) {
  kvm_segment segment = {};
  segment.limit = 0xffffffff;
  segment.type = type;
  segment.present = 1;
  segment.db = 1;
  segment.s = 1;
  segment.g = 1;
  return segment;
}

}  // namespace

Result<void> SetUpVcpu(const kvm::Vcpu& vcpu) {
  const std::array<kvm_msr_entry, 2> msrs = {{
      {.index = kMsrMiscEnable, .reserved = 0, .data = kFastStrings},
      {.index = kMsrMtrrDefaultType, .reserved = 0, .data = kMtrrWriteBack},
  }};
  SPACE_TRY_VOID(vcpu.SetMsrs(msrs), "set up vCPU");
  kvm_fpu fpu = {};
  fpu.fcw = kFpuControlAtReset;
  fpu.mxcsr = kMxcsrAtReset;
  SPACE_TRY_VOID(vcpu.SetFpu(fpu), "set up vCPU");
  return vcpu.SetLocalInterrupts();
}

Result<void> SetUpPvhEntry(const kvm::Vcpu& vcpu, GuestAddress entry, GuestAddress start_info) {
  constexpr uint8_t kCode = 11;  // execute, read, accessed
  constexpr uint8_t kData = 3;   // read, write, accessed
  SPACE_TRY(kvm_sregs special, vcpu.SpecialRegisters(), "set up boot vCPU");
  special.cs = Segment(kCode);
  special.cs.selector = 0x8;
  special.ds = special.es = special.fs = special.gs = special.ss = Segment(kData);
  special.ds.selector = special.es.selector = special.ss.selector = 0x10;
  special.tr = Segment(kCode);  // busy 32-bit task
  special.tr.limit = 0x67;
  special.tr.s = 0;
  special.tr.db = 0;
  special.tr.g = 0;
  special.cr0 = kCr0ProtectedMode;
  special.cr4 = 0;
  special.efer = 0;
  SPACE_TRY_VOID(vcpu.SetSpecialRegisters(special), "set up boot vCPU");
  kvm_regs registers = {};
  registers.rip = entry.value;
  registers.rbx = start_info.value;
  registers.rflags = 2;
  return vcpu.SetRegisters(registers);
}

}  // namespace space
