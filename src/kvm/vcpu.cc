#include "kvm/vcpu.h"

#include <signal.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "kvm/list_heads.h"

namespace space::kvm {
namespace {

std::string Hex(uint64_t value) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

// The local APIC's registers lie 16 bytes apart; offsets from the SDM, table 11-1.
constexpr size_t kApicLint0 = 0x350;
constexpr size_t kApicLint1 = 0x360;
constexpr uint32_t kDeliveryMask = 0x700;
constexpr uint32_t kDeliveryNmi = 0x400;
constexpr uint32_t kDeliveryExtInt = 0x700;

void SetDelivery(kvm_lapic_state& state, size_t offset, uint32_t delivery) {
  uint32_t value = 0;
  std::memcpy(&value, state.regs + offset, sizeof(value));
  value = (value & ~kDeliveryMask) | delivery;
  std::memcpy(state.regs + offset, &value, sizeof(value));
}

// Sub-reasons of KVM_EXIT_INTERNAL_ERROR.
std::string InternalErrorName(uint32_t suberror) {
  switch (suberror) {
    case KVM_INTERNAL_ERROR_EMULATION:
      return "KVM cannot emulate an instruction";
    case KVM_INTERNAL_ERROR_SIMUL_EX:
      return "KVM met nested exceptions";
    case KVM_INTERNAL_ERROR_DELIVERY_EV:
      return "KVM cannot deliver an event";
    default:
      return "KVM internal error " + std::to_string(suberror);
  }
}

}  // namespace

Result<VcpuExit> Vcpu::Run() {
  if (::ioctl(vcpu_.get(), KVM_RUN, 0) < 0) {
    if (errno == EINTR || errno == EAGAIN) {
      return InterruptedExit{};
    }
    return FailErrno("run vCPU");
  }
  return Decode();
}

VcpuExit Vcpu::Decode() {
  kvm_run& shared = run();
  switch (shared.exit_reason) {
    case KVM_EXIT_IO: {
      const auto& io = shared.io;
      const size_t length = size_t{io.size} * io.count;
      if (io.data_offset > run_.size_bytes() || length > run_.size_bytes() - io.data_offset) {
        return FailureExit{"KVM reports port data outside the vCPU's page"};
      }
      return PortExit{io.port, io.direction == KVM_EXIT_IO_OUT, io.size, io.count,
                      run_.bytes().subspan(io.data_offset, length)};
    }
    case KVM_EXIT_MMIO: {
      auto& mmio = shared.mmio;
      const size_t length = mmio.len <= sizeof(mmio.data) ? mmio.len : sizeof(mmio.data);
      return MmioExit{GuestAddress{mmio.phys_addr}, mmio.is_write != 0,
                      std::as_writable_bytes(std::span(mmio.data).first(length))};
    }
    case KVM_EXIT_HLT:
      return HaltExit{};
    case KVM_EXIT_SHUTDOWN:
      return TripleFaultExit{};
    case KVM_EXIT_SYSTEM_EVENT:
      return ResetExit{};
    case KVM_EXIT_INTR:
    case KVM_EXIT_IRQ_WINDOW_OPEN:
      return InterruptedExit{};
    case KVM_EXIT_INTERNAL_ERROR:
      return Describe(InternalErrorName(shared.internal.suberror));
    case KVM_EXIT_FAIL_ENTRY:
      return Describe("the processor refused to enter the guest, reason " +
                      Hex(shared.fail_entry.hardware_entry_failure_reason));
    default:
      return Describe("KVM exit of unknown kind " + std::to_string(shared.exit_reason));
  }
}

FailureExit Vcpu::Describe(std::string what) const {
  const Result<kvm_regs> registers = Registers();
  if (registers) {
    what += " at rip " + Hex(registers->rip);
  }
  const kvm_run& shared = run();
  if (shared.exit_reason == KVM_EXIT_INTERNAL_ERROR &&
      shared.internal.suberror == KVM_INTERNAL_ERROR_EMULATION && shared.internal.ndata >= 1 &&
      (shared.emulation_failure.flags & KVM_INTERNAL_ERROR_EMULATION_FLAG_INSTRUCTION_BYTES) != 0) {
    what += ", bytes";
    const size_t size = shared.emulation_failure.insn_size;
    for (size_t at = 0; at < size && at < sizeof(shared.emulation_failure.insn_bytes); ++at) {
      std::array<char, 8> byte{};
      std::snprintf(byte.data(), byte.size(), " %02x", shared.emulation_failure.insn_bytes[at]);
      what += byte.data();
    }
  }
  return FailureExit{std::move(what)};
}

Result<void> Vcpu::SetKickSignal(int signal) const {
  sigset_t blocked;
  if (::pthread_sigmask(SIG_SETMASK, nullptr, &blocked) != 0) {
    return Fail(ErrorCode::kInternal, "read signal mask");
  }
  ::sigdelset(&blocked, signal);
  // The kernel's set is 8 bytes; glibc's begins with them.
  struct Request {
    SignalMaskHead head{8};
    std::array<std::byte, 8> set{};
  } request;
  static_assert(sizeof(Request) == 12);
  std::memcpy(request.set.data(), &blocked, request.set.size());
  if (::ioctl(vcpu_.get(), kSetSignalMask, &request) < 0) {
    return FailErrno("set signal mask of vCPU");
  }
  return {};
}

Result<void> Vcpu::SetCpuid(const CpuidTable& table) {
  List<kvm_cpuid_entry2> request{std::span(table)};
  if (::ioctl(vcpu_.get(), kSetCpuid2, request.data()) < 0) {
    return FailErrno("set CPUID");
  }
  cpuid_ = table;
  return {};
}

Result<void> Vcpu::SetMsrs(std::span<const kvm_msr_entry> msrs) const {
  List<kvm_msr_entry> request{msrs};
  const int set = ::ioctl(vcpu_.get(), kSetMsrs, request.data());
  if (set < 0) {
    return FailErrno("set MSRs");
  }
  if (static_cast<size_t>(set) != msrs.size()) {
    return Fail(ErrorCode::kInternal, "KVM refuses MSR", Hex(msrs[static_cast<size_t>(set)].index));
  }
  return {};
}

Result<kvm_regs> Vcpu::Registers() const {
  kvm_regs registers = {};
  if (::ioctl(vcpu_.get(), KVM_GET_REGS, &registers) < 0) {
    return FailErrno("get registers");
  }
  return registers;
}

Result<void> Vcpu::SetRegisters(const kvm_regs& registers) const {
  if (::ioctl(vcpu_.get(), KVM_SET_REGS, &registers) < 0) {
    return FailErrno("set registers");
  }
  return {};
}

Result<kvm_sregs> Vcpu::SpecialRegisters() const {
  kvm_sregs registers = {};
  if (::ioctl(vcpu_.get(), KVM_GET_SREGS, &registers) < 0) {
    return FailErrno("get special registers");
  }
  return registers;
}

Result<void> Vcpu::SetSpecialRegisters(const kvm_sregs& registers) const {
  if (::ioctl(vcpu_.get(), KVM_SET_SREGS, &registers) < 0) {
    return FailErrno("set special registers");
  }
  return {};
}

Result<void> Vcpu::SetFpu(const kvm_fpu& fpu) const {
  if (::ioctl(vcpu_.get(), KVM_SET_FPU, &fpu) < 0) {
    return FailErrno("set FPU");
  }
  return {};
}

Result<void> Vcpu::SetLocalInterrupts() const {
  kvm_lapic_state state = {};
  if (::ioctl(vcpu_.get(), KVM_GET_LAPIC, &state) < 0) {
    return FailErrno("get local APIC");
  }
  SetDelivery(state, kApicLint0, kDeliveryExtInt);
  SetDelivery(state, kApicLint1, kDeliveryNmi);
  if (::ioctl(vcpu_.get(), KVM_SET_LAPIC, &state) < 0) {
    return FailErrno("set local APIC");
  }
  return {};
}

}  // namespace space::kvm
