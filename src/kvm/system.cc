#include "kvm/system.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>

#include "kvm/list_heads.h"

namespace space::kvm {
namespace {

struct Needed {
  int capability;
  std::string_view name;
};
constexpr std::array<Needed, 12> kNeeded = {{
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
    {KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP"},
    {KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD"},
    {KVM_CAP_IRQFD, "KVM_CAP_IRQFD"},
    {KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
    {KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
    {KVM_CAP_XCRS, "KVM_CAP_XCRS"},
    {KVM_CAP_DEBUGREGS, "KVM_CAP_DEBUGREGS"},
    {KVM_CAP_VCPU_EVENTS, "KVM_CAP_VCPU_EVENTS"},
    {KVM_CAP_SET_TSS_ADDR, "KVM_CAP_SET_TSS_ADDR"},
    {KVM_CAP_ADJUST_CLOCK, "KVM_CAP_ADJUST_CLOCK"},
}};

constexpr size_t kMaxCpuidEntries = 256;  // KVM_MAX_CPUID_ENTRIES

// KVM_CREATE_VM may be interrupted while it waits for its threads.
constexpr int kCreateTries = 5;

}  // namespace

Result<System> System::Create(UniqueFd kvm) {
  const int version = ::ioctl(kvm.get(), KVM_GET_API_VERSION, 0);
  if (version < 0) {
    return FailErrno("ask for the KVM version");
  }
  if (version != KVM_API_VERSION) {
    return Fail(ErrorCode::kUnimplemented, "KVM has another API version", std::to_string(version));
  }
  for (const Needed& needed : kNeeded) {
    if (::ioctl(kvm.get(), KVM_CHECK_EXTENSION, needed.capability) <= 0) {
      return Fail(ErrorCode::kUnimplemented, "KVM lacks a capability", needed.name);
    }
  }
  const int run_bytes = ::ioctl(kvm.get(), KVM_GET_VCPU_MMAP_SIZE, 0);
  if (run_bytes < static_cast<int>(sizeof(kvm_run))) {
    return FailErrno("ask for the size of a vCPU's page");
  }
  System system(std::move(kvm), static_cast<size_t>(run_bytes));
  SPACE_TRY(system.cpuid_, system.AskCpuid(), "use KVM");
  SPACE_TRY(system.shape_, system.AskStateShape(), "use KVM");
  return system;
}

Result<Vm> System::CreateVm() const {
  for (int tried = 1;; ++tried) {
    UniqueFd vm(::ioctl(kvm_.get(), KVM_CREATE_VM, 0));
    if (vm.valid()) {
      return Vm(std::move(vm), run_bytes_);
    }
    if (errno != EINTR || tried == kCreateTries) {
      return FailErrno("create VM");
    }
  }
}

Result<CpuidTable> System::AskCpuid() const {
  List<kvm_cpuid_entry2> table(kMaxCpuidEntries);
  if (::ioctl(kvm_.get(), kGetSupportedCpuid, table.data()) < 0) {
    return FailErrno("ask for the supported CPUID");
  }
  return table.Entries();
}

Result<StateShape> System::AskStateShape() const {
  StateShape shape;
  const int xsave_bytes = CheckExtension(KVM_CAP_XSAVE2);
  shape.xsave_bytes = std::max(sizeof(kvm_xsave), static_cast<size_t>(xsave_bytes));
  if (shape.xsave_bytes > VcpuState::kMaxXsaveBytes) {
    return Fail(ErrorCode::kUnimplemented, "this host's XSAVE state is too large",
                std::to_string(shape.xsave_bytes));
  }
  shape.has_tsc_offset = CheckExtension(KVM_CAP_VCPU_ATTRIBUTES) > 0;
  // With room for none it says how many there are.
  std::vector<uint32_t> list(1);
  if (::ioctl(kvm_.get(), kGetMsrIndexList, list.data()) < 0 && errno != E2BIG) {
    return FailErrno("ask for the list of MSRs");
  }
  list.resize(size_t{1} + std::min<size_t>(list.front(), VcpuState::kMaxMsrs));
  list.front() = static_cast<uint32_t>(list.size() - 1);
  if (::ioctl(kvm_.get(), kGetMsrIndexList, list.data()) < 0) {
    return FailErrno("ask for the list of MSRs");
  }
  std::ranges::copy_if(list.begin() + 1, list.end(), std::back_inserter(shape.msrs),
                       [](uint32_t msr) { return !IsLeftOut(msr); });
  return shape;
}

int System::CheckExtension(int capability) const {
  const int value = ::ioctl(kvm_.get(), KVM_CHECK_EXTENSION, capability);
  return value < 0 ? 0 : value;
}

}  // namespace space::kvm
