#include "kvm/system.h"

#include <sys/ioctl.h>

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
constexpr std::array<Needed, 9> kNeeded = {{
    {KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY"},
    {KVM_CAP_IRQCHIP, "KVM_CAP_IRQCHIP"},
    {KVM_CAP_IOEVENTFD, "KVM_CAP_IOEVENTFD"},
    {KVM_CAP_IRQFD, "KVM_CAP_IRQFD"},
    {KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID"},
    {KVM_CAP_MP_STATE, "KVM_CAP_MP_STATE"},
    {KVM_CAP_XSAVE, "KVM_CAP_XSAVE"},
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
  return System(std::move(kvm), static_cast<size_t>(run_bytes));
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

Result<CpuidTable> System::SupportedCpuid() const {
  List<kvm_cpuid_entry2> table(kMaxCpuidEntries);
  if (::ioctl(kvm_.get(), kGetSupportedCpuid, table.data()) < 0) {
    return FailErrno("ask for the supported CPUID");
  }
  return table.Entries();
}

int System::CheckExtension(int capability) const {
  const int value = ::ioctl(kvm_.get(), KVM_CHECK_EXTENSION, capability);
  return value < 0 ? 0 : value;
}

}  // namespace space::kvm
