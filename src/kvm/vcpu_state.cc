#include "kvm/vcpu_state.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "kvm/list_heads.h"
#include "kvm/vcpu.h"

namespace space::kvm {
namespace {

struct MsrRange {
  uint32_t first;
  uint32_t last;
};
// SDM volume 4 and APM volume 2, appendix A.
constexpr std::array<MsrRange, 15> kLeftOut = {{
    {0xc1, 0xc8},              // performance counters
    {0x17b, 0x17b},            // MCG_CTL: only with a capability that we do not set
    {0x186, 0x18d},            // event selectors
    {0x309, 0x310},            // fixed counters
    {0x345, 0x345},            // PERF_CAPABILITIES
    {0x38d, 0x390},            // control of counters
    {0x3f1, 0x3f2},            // PEBS
    {0x480, 0x493},            // VMX capabilities
    {0x4c1, 0x4c8},            // wide counters
    {0x600, 0x600},            // DS area
    {0x40000000, 0x400001ff},  // Hyper-V
    {0xc0000300, 0xc0000303},  // AMD's control of counters
    {0xc0010000, 0xc0010007},  // AMD's counters
    {0xc0010117, 0xc0010117},  // VM_HSAVE_PA
    {0xc0010200, 0xc001020b},  // AMD's extended counters
}};

// Which differ between hosts and which a host may refuse to have set; the guest looks at them while
// it boots only.
constexpr uint32_t kMsrArchCapabilities = 0x10a;
constexpr uint32_t kMsrMicrocode = 0x8b;

constexpr uint64_t kX87AndSse = 3;  // XCR0

constexpr size_t kMsrsPerCall = 128;  // KVM takes 256

bool MayBeRefused(const kvm_msr_entry& entry) {
  return entry.data == 0 || entry.index == kMsrArchCapabilities || entry.index == kMsrMicrocode;
}

template <class T>
Result<void> Get(int fd, unsigned long request, T& into, std::string_view what) {
  if (::ioctl(fd, request, &into) < 0) {
    return FailErrno("get", what);
  }
  return {};
}

template <class T>
Result<void> Set(int fd, unsigned long request, const T& from, std::string_view what) {
  if (::ioctl(fd, request, &from) < 0) {
    return FailErrno("set", what);
  }
  return {};
}

// KVM writes user_size bytes, so the buffer is as large as the host's state whatever was saved.
Result<std::vector<std::byte>> GetXsave(int fd, size_t bytes) {
  std::vector<std::byte> state(std::max(bytes, sizeof(kvm_xsave)));
  const unsigned long request = bytes > sizeof(kvm_xsave) ? KVM_GET_XSAVE2 : KVM_GET_XSAVE;
  if (::ioctl(fd, request, state.data()) < 0) {
    return FailErrno("get XSAVE state");
  }
  return state;
}

Result<void> SaveFpu(int fd, const StateShape& shape, VcpuState& state) {
  SPACE_TRY_VOID(Get(fd, KVM_GET_FPU, state.fpu, "FPU"), "FPU");
  Result<std::vector<std::byte>> xsave = GetXsave(fd, shape.xsave_bytes);
  SPACE_TRY_VOID(Get(fd, KVM_GET_XCRS, state.xcrs, "XCRs"), "FPU");
  if (xsave) {
    state.xsave = *std::move(xsave);
    return {};
  }
  const uint32_t count = std::min<uint32_t>(state.xcrs.nr_xcrs, KVM_MAX_XCRS);
  const bool has_more = std::any_of(state.xcrs.xcrs, state.xcrs.xcrs + count, [](const auto& xcr) {
    return xcr.xcr == 0 && (xcr.value & ~kX87AndSse) != 0;
  });
  return has_more ? Result<void>(Fail(xsave.error())) : Result<void>();
}

Result<void> RestoreFpu(int fd, const StateShape& shape, const VcpuState& state) {
  if (state.xsave.empty()) {
    SPACE_TRY_VOID(Set(fd, KVM_SET_FPU, state.fpu, "FPU"), "FPU");
  } else {
    std::vector<std::byte> xsave = state.xsave;
    xsave.resize(std::max(xsave.size(), shape.xsave_bytes));
    if (::ioctl(fd, KVM_SET_XSAVE, xsave.data()) < 0) {
      return FailErrno("set XSAVE state");
    }
  }
  return Set(fd, KVM_SET_XCRS, state.xcrs, "XCRs");
}

// Those that can be read, in the order given.
Result<std::vector<kvm_msr_entry>> GetMsrs(int fd, const std::vector<uint32_t>& indices) {
  std::vector<kvm_msr_entry> got;
  for (size_t at = 0; at < indices.size();) {
    const size_t count = std::min(kMsrsPerCall, indices.size() - at);
    std::vector<kvm_msr_entry> asked(count);
    for (size_t each = 0; each < count; ++each) {
      asked[each].index = indices[at + each];
    }
    List<kvm_msr_entry> request{std::span<const kvm_msr_entry>(asked)};
    const int read = ::ioctl(fd, kGetMsrs, request.data());
    if (read < 0) {
      return FailErrno("get MSRs");
    }
    const std::vector<kvm_msr_entry> entries = request.Entries();
    const size_t done = std::min(static_cast<size_t>(read), count);
    got.insert(got.end(), entries.begin(), entries.begin() + static_cast<ptrdiff_t>(done));
    at += done < count ? done + 1 : count;  // the one that stopped it is left out
  }
  return got;
}

Result<void> SetMsrsTolerantly(int fd, std::span<const kvm_msr_entry> msrs) {
  while (!msrs.empty()) {
    const std::span<const kvm_msr_entry> part = msrs.first(std::min(kMsrsPerCall, msrs.size()));
    List<kvm_msr_entry> request{part};
    const int set = ::ioctl(fd, kSetMsrs, request.data());
    if (set < 0) {
      return FailErrno("set MSRs");
    }
    size_t done = std::min(static_cast<size_t>(set), part.size());
    if (done < part.size()) {
      const kvm_msr_entry& refused = part[done];
      if (!MayBeRefused(refused)) {
        return Fail(ErrorCode::kUnimplemented, "this host's KVM refuses a saved MSR",
                    std::to_string(refused.index));
      }
      ++done;
    }
    msrs = msrs.subspan(done);
  }
  return {};
}

// TSC behind all others, since KVM matches the vCPUs' by the time between the writes; the deadline
// of the timer last, since it counts from the TSC.
std::vector<kvm_msr_entry> InOrder(const std::vector<kvm_msr_entry>& msrs) {
  std::vector<kvm_msr_entry> ordered = msrs;
  const auto rank = [](const kvm_msr_entry& entry) {
    return entry.index == kMsrTscDeadline ? 2 : entry.index == kMsrTsc ? 1 : 0;
  };
  std::ranges::stable_sort(ordered, {}, rank);
  return ordered;
}

const kvm_msr_entry* FindMsr(const std::vector<kvm_msr_entry>& msrs, uint32_t index) {
  const auto found = std::ranges::find(msrs, index, &kvm_msr_entry::index);
  return found == msrs.end() ? nullptr : &*found;
}

}  // namespace

bool IsLeftOut(uint32_t msr) {
  return std::ranges::any_of(
      kLeftOut, [msr](const MsrRange& range) { return range.first <= msr && msr <= range.last; });
}

Result<VcpuState> Vcpu::SaveState(const StateShape& shape) const {
  const int fd = vcpu_.get();
  VcpuState state;
  // First: reading it makes KVM work off pending INIT and SIPI, which changes what follows.
  SPACE_TRY_VOID(Get(fd, KVM_GET_MP_STATE, state.mp_state, "MP state"), "save vCPU");
  SPACE_TRY_VOID(Get(fd, KVM_GET_REGS, state.registers, "registers"), "save vCPU");
  SPACE_TRY_VOID(Get(fd, KVM_GET_SREGS, state.special, "special registers"), "save vCPU");
  SPACE_TRY_VOID(SaveFpu(fd, shape, state), "save vCPU");
  SPACE_TRY_VOID(Get(fd, KVM_GET_DEBUGREGS, state.debug, "debug registers"), "save vCPU");
  SPACE_TRY_VOID(Get(fd, KVM_GET_LAPIC, state.apic, "local APIC"), "save vCPU");
  const int tsc_khz = ::ioctl(fd, KVM_GET_TSC_KHZ, 0);
  state.tsc_khz = tsc_khz < 0 ? 0 : static_cast<uint32_t>(tsc_khz);
  SPACE_TRY(state.msrs, GetMsrs(fd, shape.msrs), "save vCPU");
  // A timer that is due but not yet delivered reads 0 and would be lost: let it fire at once.
  const kvm_msr_entry* tsc = FindMsr(state.msrs, kMsrTsc);
  for (kvm_msr_entry& entry : state.msrs) {
    if (entry.index == kMsrTscDeadline && entry.data == 0 && tsc != nullptr) {
      entry.data = tsc->data;
    }
  }
  // Last: all of the above may have injected something.
  SPACE_TRY_VOID(Get(fd, KVM_GET_VCPU_EVENTS, state.events, "events"), "save vCPU");
  state.cpuid = cpuid_;
  return state;
}

Result<void> Vcpu::RestoreState(const VcpuState& state, const StateShape& shape) {
  const int fd = vcpu_.get();
  SPACE_TRY_VOID(SetCpuid(state.cpuid), "restore vCPU");
  const int host_khz = ::ioctl(fd, KVM_GET_TSC_KHZ, 0);
  // The guest has measured its TSC. KVM's tolerance, too: 250 parts in a million are no difference.
  const int64_t difference = int64_t{host_khz} - int64_t{state.tsc_khz};
  if (state.tsc_khz != 0 && host_khz > 0 &&
      std::abs(difference) * 1'000'000 > int64_t{state.tsc_khz} * 250 &&
      ::ioctl(fd, KVM_SET_TSC_KHZ, state.tsc_khz) < 0) {
    return FailErrno(
        "the saved TSC runs at another speed and this host cannot scale it: set TSC "
        "frequency");
  }
  SPACE_TRY_VOID(Set(fd, KVM_SET_MP_STATE, state.mp_state, "MP state"), "restore vCPU");
  // Before the events: setting registers drops pending exceptions.
  SPACE_TRY_VOID(Set(fd, KVM_SET_REGS, state.registers, "registers"), "restore vCPU");
  // Before the local APIC: they hold its base and mode.
  SPACE_TRY_VOID(Set(fd, KVM_SET_SREGS, state.special, "special registers"), "restore vCPU");
  SPACE_TRY_VOID(RestoreFpu(fd, shape, state), "restore vCPU");
  SPACE_TRY_VOID(Set(fd, KVM_SET_DEBUGREGS, state.debug, "debug registers"), "restore vCPU");
  // Before the MSRs: the deadline is only taken in the timer's deadline mode.
  SPACE_TRY_VOID(Set(fd, KVM_SET_LAPIC, state.apic, "local APIC"), "restore vCPU");
  SPACE_TRY_VOID(SetMsrsTolerantly(fd, InOrder(state.msrs)), "restore vCPU");
  return Set(fd, KVM_SET_VCPU_EVENTS, state.events, "events");
}

Result<uint64_t> Vcpu::Msr(uint32_t index) const {
  SPACE_TRY(const std::vector<kvm_msr_entry> msrs, GetMsrs(vcpu_.get(), {index}), "get MSR");
  if (msrs.empty()) {
    return Fail(ErrorCode::kUnimplemented, "KVM cannot read MSR", std::to_string(index));
  }
  return msrs.front().data;
}

Result<void> Vcpu::SetMsr(uint32_t index, uint64_t value) const {
  const kvm_msr_entry entry{.index = index, .reserved = 0, .data = value};
  return SetMsrs(std::span(&entry, 1));
}

Result<uint64_t> Vcpu::TscOffset() const {
  uint64_t offset = 0;
  kvm_device_attr request = {};
  request.group = KVM_VCPU_TSC_CTRL;
  request.attr = KVM_VCPU_TSC_OFFSET;
  request.addr = reinterpret_cast<uint64_t>(&offset);
  if (::ioctl(vcpu_.get(), KVM_GET_DEVICE_ATTR, &request) < 0) {
    return FailErrno("get TSC offset");
  }
  return offset;
}

Result<void> Vcpu::SetTscOffset(uint64_t offset) const {
  kvm_device_attr request = {};
  request.group = KVM_VCPU_TSC_CTRL;
  request.attr = KVM_VCPU_TSC_OFFSET;
  request.addr = reinterpret_cast<uint64_t>(&offset);
  if (::ioctl(vcpu_.get(), KVM_SET_DEVICE_ATTR, &request) < 0) {
    return FailErrno("set TSC offset");
  }
  return {};
}

Result<void> Vcpu::NotePause() const {
  // EINVAL: this guest has no kvmclock (yet).
  if (::ioctl(vcpu_.get(), KVM_KVMCLOCK_CTRL, 0) < 0 && errno != EINVAL) {
    return FailErrno("tell the guest of its pause");
  }
  return {};
}

}  // namespace space::kvm
