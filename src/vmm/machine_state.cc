// Pausing, saving and restoring a machine. Orders from KVM's side effects (kvm/vcpu_state.cc for
// those of one vCPU): save devices, vCPUs, VM; restore memory slots, chip, vCPUs, clock, chips'
// state, devices. Devices come last, or an interrupt that they raise would be overwritten.
#include <algorithm>

#include "base/log.h"
#include "base/units.h"
#include "devices/block/block_device.h"
#include "memory/working_set.h"
#include "state/state.h"
#include "vmm/cpu_check.h"
#include "vmm/machine.h"

namespace space {
namespace {

constexpr uint16_t kNameVersion = 1;
constexpr uint64_t kMaxWorkingSetBytes = 1 << 20;

Result<void> FillIn(const GuestMemory& memory, int file) {
  SPACE_TRY(const std::string bytes, ReadWhole(file, kMaxWorkingSetBytes), "read");
  SPACE_TRY(const WorkingSet set, WorkingSet::Decode(bytes, memory.size_bytes() / kPageBytes),
            "read");
  const Result<void> populated = Populate(set, memory);
  if (!populated) {
    log::Warn("working_set_not_filled_in", {{"why", populated.error().message()}});
  }
  return {};
}

}  // namespace

// ---- standing still

void Machine::ParkVcpus() {
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    thread->Park();
  }
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    thread->WaitParked();
  }
}

void Machine::UnparkVcpus() {
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    thread->Unpark();
  }
}

Result<void> Machine::Pause() {
  if (is_paused_) {
    return {};
  }
  ParkVcpus();
  Result<kvm::GuestTime> time = ReadTime();
  if (!time || exit_->Get()) {
    UnparkVcpus();
    return time ? Fail(ErrorCode::kUnavailable, "the VM has ended") : Fail(time.error());
  }
  paused_at_ = *std::move(time);
  events_->Hold();
  is_paused_ = true;
  return {};
}

Result<void> Machine::Resume() {
  if (!is_paused_) {
    return {};
  }
  SPACE_TRY_VOID(SetTime(paused_at_), "resume VM");
  SPACE_TRY_VOID(events_->Release(), "resume VM");
  is_paused_ = false;
  if (is_fresh_) {
    is_fresh_ = false;
    for (const std::unique_ptr<DeviceSlot>& slot : slots_) {
      slot->transport().KickAll();
    }
    if (serial_port_) {
      serial_port_->RaisePending();
    }
  }
  UnparkVcpus();
  return {};
}

// The vCPUs' offsets to the host's TSC tell exactly how they stand to each other; reading each
// one's TSC would add the time between the readings.
Result<kvm::GuestTime> Machine::ReadTime() const {
  kvm::GuestTime time;
  SPACE_TRY(time.clock_ns, vm_.ClockNs(), "read guest time");
  uint64_t first_offset = 0;
  for (size_t at = 0; at < threads_.size(); ++at) {
    if (at > 0 && system_->state_shape().has_tsc_offset) {
      SPACE_TRY(const uint64_t offset, vcpu(at).TscOffset(), "read guest time");
      time.tsc.push_back(time.tsc.front() + (offset - first_offset));
    } else {
      SPACE_TRY(time.tsc.emplace_back(), vcpu(at).Msr(kvm::kMsrTsc), "read guest time");
      if (system_->state_shape().has_tsc_offset) {
        SPACE_TRY(first_offset, vcpu(at).TscOffset(), "read guest time");
      }
    }
    const Result<uint64_t> deadline = vcpu(at).Msr(kvm::kMsrTscDeadline);
    time.deadline.push_back(deadline.value_or(0));
  }
  return time;
}

Result<void> Machine::SetTime(const kvm::GuestTime& time) {
  for (size_t at = 0; at < threads_.size(); ++at) {
    if (!system_->state_shape().has_tsc_offset) {
      // One behind the other, so that KVM takes them for one clock.
      SPACE_TRY_VOID(vcpu(at).SetMsr(kvm::kMsrTsc, time.tsc[at]), "set guest time");
      continue;
    }
    if (at == 0) {
      SPACE_TRY(const uint64_t now, vcpu(0).Msr(kvm::kMsrTsc), "set guest time");
      SPACE_TRY(const uint64_t offset, vcpu(0).TscOffset(), "set guest time");
      SPACE_TRY_VOID(vcpu(0).SetTscOffset(offset - (now - time.tsc[0])), "set guest time");
      continue;
    }
    SPACE_TRY(const uint64_t first, vcpu(0).TscOffset(), "set guest time");
    SPACE_TRY_VOID(vcpu(at).SetTscOffset(first + (time.tsc[at] - time.tsc[0])), "set guest time");
  }
  for (size_t at = 0; at < threads_.size(); ++at) {
    // Armed against the time before; it may have fired early meanwhile, which a guest must bear.
    if (time.deadline[at] != 0) {
      SPACE_TRY_VOID(vcpu(at).SetMsr(kvm::kMsrTscDeadline, time.deadline[at]), "set guest time");
    }
  }
  SPACE_TRY_VOID(vm_.SetClockNs(time.clock_ns), "set guest time");
  for (size_t at = 0; at < threads_.size(); ++at) {
    SPACE_TRY_VOID(vcpu(at).NotePause(), "set guest time");
  }
  return {};
}

// ---- saving

Result<SavedState> Machine::Save() const {
  if (exit_->Get()) {
    return Fail(ErrorCode::kUnavailable, "the VM has ended");
  }
  SavedState state;
  state.memory_bytes = memory_.size_bytes();
  state.has_serial = serial_port_ != nullptr;
  if (serial_port_) {
    StateWriter serial;
    serial_port_->Save(serial);
    state.serial = std::move(serial).Take();
  }
  for (size_t at = 0; at < slots_.size(); ++at) {
    StateWriter device;
    device.Add("name", kNameVersion, slot_names_[at]);
    slots_[at]->transport().Save(device);
    state.devices.push_back({slot_names_[at], std::move(device).Take()});
  }
  for (const Disk& disk : disks_) {
    state.disks.push_back(disk.saved);
    state.disks.back().layers = disk.device->image().layer_ids();
  }
  for (size_t at = 0; at < threads_.size(); ++at) {
    SPACE_TRY(state.vcpus.emplace_back(), vcpu(at).SaveState(system_->state_shape()),
              "save vCPU " + std::to_string(at));
  }
  SPACE_TRY(state.vm, vm_.SaveState(), "save VM");
  if (is_paused_) {
    state.time = paused_at_;
  } else {
    SPACE_TRY(state.time, ReadTime(), "save VM");
  }
  return state;
}

std::vector<uint64_t> Machine::WritableDisks() const {
  std::vector<uint64_t> sizes;
  for (const Disk& disk : disks_) {
    if (!disk.saved.is_read_only) {
      sizes.push_back(disk.saved.size_bytes);
    }
  }
  return sizes;
}

Result<std::vector<int>> Machine::FreezeDisks(std::vector<UniqueFd> new_tops, size_t& done) {
  std::vector<int> frozen;
  auto next = new_tops.begin();
  for (const Disk& disk : disks_) {
    if (disk.saved.is_read_only) {
      continue;
    }
    SPACE_TRY(frozen.emplace_back(), disk.device->FreezeTop(std::move(*next++)),
              "freeze disk " + disk.saved.id);
    ++done;
  }
  return frozen;
}

// ---- restoring

Result<std::unique_ptr<Machine>> Machine::Restore(const kvm::System& system, RestoreConfig& config,
                                                  EventLoop& loop, ExitBox& exit,
                                                  const DeviceHooks& hooks) {
  const SavedState& state = config.state;
  for (const kvm::VcpuState& vcpu : state.vcpus) {
    SPACE_TRY_VOID(CheckCpu(vcpu.cpuid, system.supported_cpuid()), "restore VM");
  }
  std::vector<int> layers;
  for (const UniqueFd& layer : config.memory_layers) {
    layers.push_back(layer.get());
  }
  SPACE_TRY(GuestMemory memory, GuestMemory::Map(state.memory_bytes, layers, state.memory_map),
            "map memory");
  if (config.working_set) {
    SPACE_TRY_VOID(FillIn(memory, config.working_set->get()), "working set");
  }
  SPACE_TRY(std::unique_ptr<Machine> machine,
            Build(system, std::move(memory), config.machine, loop, exit, hooks), "");
  machine->memory_layers_ = state.memory_layers;
  machine->memory_map_ = state.memory_map;
  machine->layer_files_ = std::move(config.memory_layers);
  SPACE_TRY_VOID(machine->CheckDiskLayers(state), "restore disks");
  SPACE_TRY_VOID(machine->RestoreVcpus(state), "restore vCPUs");
  SPACE_TRY_VOID(machine->vm_.SetClockNs(state.time.clock_ns), "restore clock");
  SPACE_TRY_VOID(machine->vm_.RestoreChips(state.vm), "restore interrupt chips");
  SPACE_TRY_VOID(machine->RestoreDevices(state), "restore devices");
  machine->paused_at_ = state.time;
  machine->is_paused_ = true;
  machine->is_fresh_ = true;
  machine->StartThreads(VcpuThread::Start::kParked);
  machine->ParkVcpus();  // until each of them stands
  return machine;
}

// The MSRs of all vCPUs one behind the other, on one thread: KVM matches their TSCs by the time
// between the writes.
Result<void> Machine::RestoreVcpus(const SavedState& state) {
  for (uint32_t id = 0; id < state.vcpus.size(); ++id) {
    SPACE_TRY(kvm::Vcpu vcpu, vm_.CreateVcpu(id), "make vCPU");
    vcpus_.push_back(std::move(vcpu));
  }
  for (size_t id = 0; id < vcpus_.size(); ++id) {
    SPACE_TRY_VOID(vcpus_[id].RestoreState(state.vcpus[id], system_->state_shape()),
                   "vCPU " + std::to_string(id));
  }
  return {};
}

Result<void> Machine::CheckDiskLayers(const SavedState& state) const {
  for (size_t at = 0; at < disks_.size(); ++at) {
    std::vector<LayerId> layers = disks_[at].device->image().layer_ids();
    if (!disks_[at].saved.is_read_only && !layers.empty()) {
      layers.pop_back();  // the new top
    }
    // A merged layer has the id of the topmost one that it stands for.
    const std::vector<LayerId>& saved = state.disks[at].layers;
    if (layers.empty() != saved.empty() || (!saved.empty() && layers.back() != saved.back())) {
      return Fail(ErrorCode::kInvalidArgument, "layers are not those that the snapshot stands on",
                  disks_[at].saved.id);
    }
  }
  return {};
}

bool Machine::IsLayerCut() const {
  return std::ranges::any_of(memory_map_.extents(), [this](const MemoryExtent& extent) {
    const Result<uint64_t> size = FileSize(layer_files_[extent.layer].get());
    return !size || *size < SparseLayer::FileOffset(extent.end());
  });
}

Result<void> Machine::RestoreDevices(const SavedState& state) {
  if (state.devices.size() != slots_.size()) {
    return Fail(ErrorCode::kInvalidArgument, "the snapshot has " +
                                                 std::to_string(state.devices.size()) +
                                                 " devices, not " + std::to_string(slots_.size()));
  }
  for (size_t at = 0; at < slots_.size(); ++at) {
    const SavedDevice& saved = state.devices[at];
    if (saved.name != slot_names_[at]) {
      return Fail(ErrorCode::kInvalidArgument, "the snapshot has another device in place of",
                  slot_names_[at]);
    }
    SPACE_TRY(StateReader in, StateReader::Parse(saved.state), saved.name);
    SPACE_TRY_VOID(slots_[at]->transport().Restore(in), saved.name);
  }
  if (serial_port_) {
    SPACE_TRY(StateReader in, StateReader::Parse(state.serial), "serial");
    SPACE_TRY_VOID(serial_port_->Restore(in), "serial");
  }
  return {};
}

}  // namespace space
