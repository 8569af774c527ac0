#include "vmm/saved_state.h"

#include <cstring>
#include <iterator>

#include "base/bytes.h"
#include "state/state.h"
#include "vmm/start_config.h"
#include "vmm/vcpu_codec.h"

namespace space {
namespace {

constexpr uint16_t kVersion = 1;
constexpr size_t kMaxNameBytes = 32;

tl::unexpected<Error> Refuse(std::string text) {
  return Fail(ErrorCode::kInvalidArgument, std::move(text));
}

std::string Numbered(const char* name, size_t at) { return name + std::to_string(at); }

void PutIds(ByteWriter& out, const std::vector<LayerId>& ids) {
  out.Put(static_cast<uint32_t>(ids.size()));
  for (const LayerId& id : ids) {
    out.PutRaw(BytesOf(id));
  }
}

Result<std::vector<LayerId>> GetIds(ByteReader& in, size_t limit) {
  SPACE_TRY(const uint32_t count, in.Get<uint32_t>(), "number of layers");
  if (count > limit) {
    return Refuse("too many layers: " + std::to_string(count));
  }
  std::vector<LayerId> ids(count);
  for (LayerId& id : ids) {
    SPACE_TRY(const std::string_view bytes, in.GetRaw(id.size()), "layer id");
    std::memcpy(id.data(), bytes.data(), id.size());
  }
  return ids;
}

Result<bool> GetBool(ByteReader& in) {
  SPACE_TRY(const uint8_t value, in.Get<uint8_t>(), "flag");
  if (value > 1) {
    return Refuse("a flag is neither 0 nor 1");
  }
  return value == 1;
}

std::string EncodeTime(const kvm::GuestTime& time) {
  ByteWriter out;
  out.Put(time.clock_ns);
  out.Put(static_cast<uint32_t>(time.tsc.size()));
  for (size_t at = 0; at < time.tsc.size(); ++at) {
    out.Put(time.tsc[at]);
    out.Put(time.deadline[at]);
  }
  return std::move(out).Take();
}

Result<kvm::GuestTime> DecodeTime(std::string_view body, size_t vcpus) {
  ByteReader in(body);
  kvm::GuestTime time;
  SPACE_TRY(time.clock_ns, in.Get<uint64_t>(), "clock");
  SPACE_TRY(const uint32_t count, in.Get<uint32_t>(), "number of vCPUs");
  if (count != vcpus) {
    return Refuse("section is for another number of vCPUs");
  }
  time.tsc.resize(count);
  time.deadline.resize(count);
  for (size_t at = 0; at < count; ++at) {
    SPACE_TRY(time.tsc[at], in.Get<uint64_t>(), "TSC");
    SPACE_TRY(time.deadline[at], in.Get<uint64_t>(), "deadline");
  }
  SPACE_TRY_VOID(in.Finish(), "end");
  return time;
}

std::string EncodeChips(const kvm::VmState& vm) {
  ByteWriter out;
  for (const kvm_irqchip& chip : vm.chips) {
    out.PutRaw(BytesOf(chip.chip));
  }
  return std::move(out).Take();
}

Result<void> DecodeChips(std::string_view body, kvm::VmState& vm) {
  ByteReader in(body);
  for (size_t at = 0; at < std::size(vm.chips); ++at) {
    kvm_irqchip& chip = vm.chips[at];
    SPACE_TRY(const std::string_view bytes, in.GetRaw(sizeof(chip.chip)), "interrupt chip");
    chip.chip_id = static_cast<uint32_t>(at);
    std::memcpy(&chip.chip, bytes.data(), bytes.size());
  }
  return in.Finish();
}

std::string EncodeDisks(const std::vector<SavedDisk>& disks) {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(disks.size()));
  for (const SavedDisk& disk : disks) {
    out.PutString(disk.id);
    out.Put(disk.size_bytes);
    out.Put(static_cast<uint8_t>(disk.is_read_only));
    out.Put(static_cast<uint8_t>(disk.has_raw_bottom));
    PutIds(out, disk.layers);
  }
  return std::move(out).Take();
}

Result<std::vector<SavedDisk>> DecodeDisks(std::string_view body) {
  ByteReader in(body);
  SPACE_TRY(const uint32_t count, in.Get<uint32_t>(), "number of disks");
  if (count > MachineConfig::kMaxDisks) {
    return Refuse("too many disks: " + std::to_string(count));
  }
  std::vector<SavedDisk> disks(count);
  for (SavedDisk& disk : disks) {
    SPACE_TRY(disk.id, in.GetString(kMaxNameBytes), "disk id");
    SPACE_TRY(disk.size_bytes, in.Get<uint64_t>(), "disk size");
    SPACE_TRY(disk.is_read_only, GetBool(in), "read-only");
    SPACE_TRY(disk.has_raw_bottom, GetBool(in), "raw bottom");
    SPACE_TRY(disk.layers, GetIds(in, SavedState::kMaxDiskLayers), disk.id);
  }
  SPACE_TRY_VOID(in.Finish(), "end");
  return disks;
}

Result<void> DecodeMemory(std::string_view body, SavedState& state) {
  ByteReader in(body);
  SPACE_TRY(state.memory_layers, GetIds(in, MemoryMap::kMaxLayers), "layers");
  SPACE_TRY(state.memory_map,
            MemoryMap::Decode(in.rest(), state.memory_bytes / 4096,
                              static_cast<uint32_t>(state.memory_layers.size())),
            "map");
  return {};
}

// vCPU count, which the other sections depend on.
Result<uint32_t> DecodeMachine(std::string_view body, SavedState& state) {
  ByteReader in(body);
  SPACE_TRY(const uint32_t vcpus, in.Get<uint32_t>(), "vCPUs");
  SPACE_TRY(state.memory_bytes, in.Get<uint64_t>(), "memory");
  SPACE_TRY(state.has_serial, GetBool(in), "serial");
  SPACE_TRY_VOID(in.Finish(), "end");
  if (vcpus == 0 || vcpus > MachineConfig::kMaxVcpus) {
    return Refuse("number of vCPUs is out of range: " + std::to_string(vcpus));
  }
  if (state.memory_bytes < MachineConfig::kMinMemoryBytes || state.memory_bytes > kMaxImageBytes ||
      state.memory_bytes % MachineConfig::kMemoryStepBytes != 0) {
    return Refuse("memory size is out of range: " + std::to_string(state.memory_bytes));
  }
  return vcpus;
}

Result<std::vector<SavedDevice>> DecodeDevices(const StateReader& in) {
  std::vector<SavedDevice> devices;
  for (;;) {
    const std::string name = Numbered("device.", devices.size());
    if (!in.Find(name)) {
      return devices;
    }
    if (devices.size() == SavedState::kMaxDevices) {
      return Refuse("too many devices");
    }
    SPACE_TRY(const StateSection section, in.Require(name, kVersion), "device");
    SPACE_TRY(const StateReader nested, StateReader::Parse(section.body), name);
    SPACE_TRY(const StateSection kind, nested.Require("name", kVersion), name);
    devices.push_back({std::string(kind.body), std::string(section.body)});
  }
}

}  // namespace

std::string SavedState::Encode() const {
  StateWriter out;
  ByteWriter machine;
  machine.Put(static_cast<uint32_t>(vcpus.size()));
  machine.Put(memory_bytes);
  machine.Put(static_cast<uint8_t>(has_serial));
  out.Add("machine", kVersion, machine.bytes());
  out.Add("time", kVersion, EncodeTime(time));
  out.Add("vm", kVersion, EncodeChips(vm));
  for (size_t at = 0; at < vcpus.size(); ++at) {
    out.Add(Numbered("vcpu.", at), kVersion, EncodeVcpu(vcpus[at]));
  }
  out.Add("disks", kVersion, EncodeDisks(disks));
  ByteWriter memory;
  PutIds(memory, memory_layers);
  memory.PutRaw(memory_map.Encode());
  out.Add("memory", kVersion, memory.bytes());
  if (has_serial) {
    out.Add("serial", kVersion, serial);
  }
  for (size_t at = 0; at < devices.size(); ++at) {
    out.Add(Numbered("device.", at), kVersion, devices[at].state);
  }
  return std::move(out).Take();
}

Result<SavedState> SavedState::Decode(std::string_view bytes) {
  SPACE_TRY(const StateReader in, StateReader::Parse(bytes), "saved state");
  SavedState state;
  SPACE_TRY(const StateSection machine, in.Require("machine", kVersion), "saved state");
  SPACE_TRY(const uint32_t vcpus, DecodeMachine(machine.body, state), "saved state: machine");
  SPACE_TRY(const StateSection time, in.Require("time", kVersion), "saved state");
  SPACE_TRY(state.time, DecodeTime(time.body, vcpus), "saved state: time");
  state.vm.clock_ns = state.time.clock_ns;
  SPACE_TRY(const StateSection vm, in.Require("vm", kVersion), "saved state");
  SPACE_TRY_VOID(DecodeChips(vm.body, state.vm), "saved state: vm");
  for (uint32_t at = 0; at < vcpus; ++at) {
    const std::string name = Numbered("vcpu.", at);
    SPACE_TRY(const StateSection section, in.Require(name, kVersion), "saved state");
    SPACE_TRY(state.vcpus.emplace_back(), DecodeVcpu(section.body), "saved state: " + name);
  }
  SPACE_TRY(const StateSection disks, in.Require("disks", kVersion), "saved state");
  SPACE_TRY(state.disks, DecodeDisks(disks.body), "saved state: disks");
  SPACE_TRY(const StateSection memory, in.Require("memory", kVersion), "saved state");
  SPACE_TRY_VOID(DecodeMemory(memory.body, state), "saved state: memory");
  if (state.has_serial) {
    SPACE_TRY(const StateSection serial, in.Require("serial", kVersion), "saved state");
    SPACE_TRY_VOID(StateReader::Parse(serial.body), "saved state: serial");
    state.serial = serial.body;
  }
  SPACE_TRY(state.devices, DecodeDevices(in), "saved state");
  return state;
}

}  // namespace space
