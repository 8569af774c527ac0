#include "kvm/probe_guest.h"

#include <array>
#include <cstddef>
#include <span>

// Absolute addresses below are the kCode, kXsaveArea and kPair of this file; assembled to be run at
// kCode, but with relative jumps only. The int3 handler sets ebx.
asm(R"(
  .pushsection .rodata
space_probe_code:
  movb $1, %al                # int3 through the IDT
  outb %al, $0xe9
  xorl %ebx, %ebx
  int3
  cmpl $0x33, %ebx
  jne 9f
  movb $2, %al                # xsave and xrstor of x87 and SSE state
  outb %al, $0xe9
  xorl %ecx, %ecx
  xorl %edx, %edx
  movl $3, %eax
  xsetbv
  movl $0x8000, %edi
  xsave (%rdi)
  xrstor (%rdi)
  movb $3, %al                # lock cmpxchg16b
  outb %al, $0xe9
  xorl %eax, %eax
  xorl %edx, %edx
  movl $0x77, %ebx
  movl $0x88, %ecx
  movl $0x9000, %edi
  lock cmpxchg16b (%rdi)
  jne 9f
  cmpl $0x88, 8(%rdi)
  jne 9f
  movb $4, %al
  outb %al, $0xe9
1:
  movl $50000, %ecx
2:
  decl %ecx
  jnz 2b
  movb $5, %al
  outb %al, $0xe9
  jmp 1b
9:
  movb $6, %al
  outb %al, $0xe9
  hlt
space_probe_code_end:
space_probe_handler:
  movl $0x33, %ebx
  iretq
space_probe_handler_end:
  .popsection
)");

extern "C" {
extern const std::byte space_probe_code[];
extern const std::byte space_probe_code_end[];
extern const std::byte space_probe_handler[];
extern const std::byte space_probe_handler_end[];
}

namespace space::kvm {
namespace {

constexpr GuestAddress kPml4{0x1000};
constexpr GuestAddress kPdpt{0x2000};
constexpr GuestAddress kPageDirectory{0x3000};
constexpr GuestAddress kGdt{0x4000};
constexpr GuestAddress kIdt{0x5000};
constexpr GuestAddress kHandler{0x6000};
constexpr GuestAddress kCode{0x7000};
constexpr uint64_t kStackTop = 0x20000;

constexpr uint64_t kPresentWritable = 0x3;
constexpr uint64_t kHugePage = 0x80;
constexpr uint16_t kCodeSelector = 0x8;
constexpr uint16_t kDataSelector = 0x10;
constexpr uint64_t kCodeDescriptor = 0x00af9b000000ffff;
constexpr uint64_t kDataDescriptor = 0x00cf93000000ffff;
constexpr uint16_t kInterruptGate = 0x8e00;
constexpr uint64_t kBreakpointVector = 3;

constexpr uint64_t kCr0 = 0x80000033;  // PG, NE, ET, MP, PE
constexpr uint64_t kCr4 = 0x40620;     // OSXSAVE, OSXMMEXCPT, OSFXSR, PAE
constexpr uint64_t kEferLong = 0x500;  // LMA, LME

struct IdtGate {
  uint16_t offset_low;
  uint16_t selector;
  uint16_t type;
  uint16_t offset_middle;
  uint32_t offset_high;
  uint32_t reserved;
};
static_assert(sizeof(IdtGate) == 16);

Result<void> WriteTables(const GuestMemory& memory) {
  SPACE_TRY_VOID(memory.Write<uint64_t>(kPml4, kPdpt.value | kPresentWritable), "pml4");
  SPACE_TRY_VOID(memory.Write<uint64_t>(kPdpt, kPageDirectory.value | kPresentWritable), "pdpt");
  SPACE_TRY_VOID(memory.Write<uint64_t>(kPageDirectory, kHugePage | kPresentWritable), "pd");
  SPACE_TRY_VOID(memory.Write<uint64_t>(kGdt + kCodeSelector, kCodeDescriptor), "gdt");
  SPACE_TRY_VOID(memory.Write<uint64_t>(kGdt + kDataSelector, kDataDescriptor), "gdt");
  const IdtGate gate{static_cast<uint16_t>(kHandler.value), kCodeSelector, kInterruptGate, 0, 0, 0};
  SPACE_TRY_VOID(memory.Write(kIdt + kBreakpointVector * sizeof(IdtGate), gate), "idt");
  SPACE_TRY_VOID(memory.WriteBytes(kCode, {space_probe_code, space_probe_code_end}), "code");
  return memory.WriteBytes(kHandler, {space_probe_handler, space_probe_handler_end});
}

kvm_segment FlatSegment(uint16_t selector, bool is_code) {
  kvm_segment segment = {};
  segment.limit = 0xffffffff;
  segment.selector = selector;
  segment.type = is_code ? 11 : 3;
  segment.present = 1;
  segment.s = 1;
  segment.g = 1;
  segment.l = is_code ? 1 : 0;
  segment.db = is_code ? 0 : 1;
  return segment;
}

}  // namespace

Result<void> PrepareProbeGuest(const GuestMemory& memory, const Vcpu& vcpu) {
  SPACE_TRY_VOID(WriteTables(memory), "write probe guest");
  SPACE_TRY(kvm_sregs special, vcpu.SpecialRegisters(), "prepare probe guest");
  special.cr0 = kCr0;
  special.cr3 = kPml4.value;
  special.cr4 = kCr4;
  special.efer = kEferLong;
  special.cs = FlatSegment(kCodeSelector, true);
  special.ds = special.es = special.ss = special.fs = special.gs =
      FlatSegment(kDataSelector, false);
  special.gdt.base = kGdt.value;
  special.gdt.limit = 0x17;
  special.idt.base = kIdt.value;
  special.idt.limit = 0xfff;
  SPACE_TRY_VOID(vcpu.SetSpecialRegisters(special), "prepare probe guest");
  kvm_regs registers = {};
  registers.rip = kCode.value;
  registers.rsp = kStackTop;
  registers.rflags = 2;
  return vcpu.SetRegisters(registers);
}

void RunLoopOnHost() {
  uint32_t count = kLoopCount;
  asm volatile("1: decl %0\n jnz 1b" : "+r"(count) : : "cc");
}

}  // namespace space::kvm
