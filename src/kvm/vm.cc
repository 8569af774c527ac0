#include "kvm/vm.h"

#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <string>

namespace space::kvm {

Result<void> Vm::SetMemory(const GuestMemory& memory) const {
  uint32_t slot = 0;
  for (const GuestMemory::Region& region : memory.regions()) {
    kvm_userspace_memory_region request = {};
    request.slot = slot++;
    request.guest_phys_addr = region.start.value;
    request.memory_size = region.bytes.size();
    request.userspace_addr = reinterpret_cast<uint64_t>(region.bytes.data());
    if (::ioctl(vm_.get(), KVM_SET_USER_MEMORY_REGION, &request) < 0) {
      return FailErrno("set memory slot", std::to_string(request.slot));
    }
  }
  return {};
}

Result<void> Vm::CreateInterruptChip() const {
  uint64_t identity_map = kIdentityMapAddress;
  if (::ioctl(vm_.get(), KVM_SET_IDENTITY_MAP_ADDR, &identity_map) < 0) {
    return FailErrno("set identity map address");
  }
  if (::ioctl(vm_.get(), KVM_SET_TSS_ADDR, kTssAddress) < 0) {
    return FailErrno("set TSS address");
  }
  if (::ioctl(vm_.get(), KVM_CREATE_IRQCHIP, 0) < 0) {
    return FailErrno("create interrupt chip");
  }
  return {};
}

Result<Vcpu> Vm::CreateVcpu(uint32_t id) const {
  UniqueFd vcpu(::ioctl(vm_.get(), KVM_CREATE_VCPU, id));
  if (!vcpu.valid()) {
    return FailErrno("create vCPU", std::to_string(id));
  }
  SPACE_TRY(Mapping run,
            Mapping::Create(vcpu.get(), run_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED),
            "map vCPU page");
  return Vcpu(std::move(vcpu), std::move(run));
}

Result<void> Vm::AddIoEvent(const UniqueFd& event, GuestAddress at, uint32_t match) const {
  kvm_ioeventfd request = {};
  request.datamatch = match;
  request.addr = at.value;
  request.len = sizeof(match);
  request.fd = event.get();
  request.flags = KVM_IOEVENTFD_FLAG_DATAMATCH;
  if (::ioctl(vm_.get(), KVM_IOEVENTFD, &request) < 0) {
    return FailErrno("register ioeventfd");
  }
  return {};
}

Result<void> Vm::AddIrqEvent(const UniqueFd& event, uint32_t gsi) const {
  kvm_irqfd request = {};
  request.fd = static_cast<uint32_t>(event.get());
  request.gsi = gsi;
  if (::ioctl(vm_.get(), KVM_IRQFD, &request) < 0) {
    return FailErrno("register irqfd for interrupt", std::to_string(gsi));
  }
  return {};
}

}  // namespace space::kvm
