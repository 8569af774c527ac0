#include "kvm/vm.h"

#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <iterator>
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
  // A forked child (a snapshot's) would keep the VM alive through it.
  ::madvise(run.bytes().data(), run.size_bytes(), MADV_DONTFORK);
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

Result<VmState> Vm::SaveState() const {
  VmState state;
  SPACE_TRY(state.clock_ns, ClockNs(), "save VM");
  for (uint32_t chip = 0; chip < std::size(state.chips); ++chip) {
    state.chips[chip].chip_id = chip;
    if (::ioctl(vm_.get(), KVM_GET_IRQCHIP, &state.chips[chip]) < 0) {
      return FailErrno("save VM: get interrupt chip", std::to_string(chip));
    }
  }
  return state;
}

Result<void> Vm::RestoreChips(const VmState& state) const {
  for (uint32_t chip = 0; chip < std::size(state.chips); ++chip) {
    kvm_irqchip request = state.chips[chip];
    request.chip_id = chip;
    if (::ioctl(vm_.get(), KVM_SET_IRQCHIP, &request) < 0) {
      return FailErrno("restore VM: set interrupt chip", std::to_string(chip));
    }
  }
  return {};
}

Result<uint64_t> Vm::ClockNs() const {
  kvm_clock_data data = {};
  if (::ioctl(vm_.get(), KVM_GET_CLOCK, &data) < 0) {
    return FailErrno("get clock");
  }
  return data.clock;
}

// Without KVM_CLOCK_REALTIME: the guest's monotonic clock goes on where it stood; its wall clock is
// set by the agent.
Result<void> Vm::SetClockNs(uint64_t clock_ns) const {
  kvm_clock_data data = {};
  data.clock = clock_ns;
  if (::ioctl(vm_.get(), KVM_SET_CLOCK, &data) < 0) {
    return FailErrno("set clock");
  }
  return {};
}

}  // namespace space::kvm
