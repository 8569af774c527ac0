// The state file of a snapshot: foreign bytes as they are, or (checksums would stop nearly all of
// them) a small valid state whose sections are edited and wrapped anew. What decodes must survive
// being written again; its devices are restored and looked at by a machine's transports.
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "devices/balloon/balloon_device.h"
#include "devices/block/block_device.h"
#include "devices/rng/rng_device.h"
#include "devices/serial/serial_log.h"
#include "devices/serial/serial_port.h"
#include "devices/vsock/vsock_device.h"
#include "input.h"
#include "state/state.h"
#include "virtio/fake_driver.h"
#include "virtio/mmio_transport.h"
#include "vmm/saved_state.h"

namespace {

using namespace space;

constexpr uint64_t kMemoryBytes = MiB(2);
constexpr uint64_t kDiskBytes = 16 << 10;
constexpr size_t kMaxEdits = 16;

// The devices of a machine without one.
struct Devices {
  Devices() {
    UniqueFd top = *CreateMemfd("top");
    if (!CreateSparseLayer(top.get(), kDiskBytes)) {
      std::abort();
    }
    std::vector<LayerSource> layers;
    layers.push_back({std::move(top), LayerFormat::kSparse, true});
    Add(std::make_unique<BlockDevice>(*LayeredImage::Open(std::move(layers), kDiskBytes), "root"));
    Add(*VsockDevice::Create({}, poller));
    Add(*RngDevice::Create(poller));
    Add(std::make_unique<BalloonDevice>());
  }
  void Add(std::unique_ptr<VirtioDevice> device) {
    transports.push_back(std::make_unique<MmioTransport>(std::move(device), memory, [] {}));
  }
  GuestMemory memory = *GuestMemory::Create(kMemoryBytes);
  FakePoller poller;
  SerialLog log{*CreateMemfd("serial"), 0};
  SerialPort serial{log, [] {}};
  std::vector<std::unique_ptr<MmioTransport>> transports;
};

std::string ValidState() {
  SavedState state;
  state.memory_bytes = MiB(64);
  state.has_serial = true;
  kvm::VcpuState vcpu;
  vcpu.cpuid.resize(2);
  vcpu.xsave.resize(4096);
  vcpu.msrs.resize(3);
  state.vcpus.assign(2, vcpu);
  state.time = {.clock_ns = 1, .tsc = {2, 3}, .deadline = {4, 5}};
  state.disks.push_back({"root", kDiskBytes, false, true, {LayerId{}}});
  state.memory_layers.resize(2);
  const std::array<MemoryExtent, 2> extents = {{{0, 16, 0}, {32, 8, 1}}};
  state.memory_map = *MemoryMap::Create(extents, state.memory_bytes / 4096, 2);
  Devices devices;
  StateWriter serial;
  devices.serial.Save(serial);
  state.serial = std::move(serial).Take();
  for (const auto& transport : devices.transports) {
    StateWriter device;
    device.Add("name", 1, transport->device().name());
    transport->Save(device);
    state.devices.push_back({std::string(transport->device().name()), std::move(device).Take()});
  }
  return state.Encode();
}

// One byte of one section, at any depth, becomes another; checksums are right again.
std::string Edit(const std::string& bytes, fuzz::Input& input) {
  const auto reader = StateReader::Parse(bytes);
  if (!reader || reader->sections().empty()) {
    return bytes;
  }
  const size_t chosen = input.Take<uint8_t>() % reader->sections().size();
  StateWriter out;
  for (size_t at = 0; at < reader->sections().size(); ++at) {
    const StateSection& section = reader->sections()[at];
    std::string body(section.body);
    uint16_t version = section.version;
    if (at == chosen && StateReader::Parse(body)) {
      body = Edit(body, input);
    } else if (at == chosen) {
      const auto place = input.Take<uint16_t>();
      const auto value = input.Take<uint8_t>();
      if (place == 0xffff) {
        body.resize(body.size() * value / 256);
      } else if (place == 0xfffe) {
        version = value;
      } else if (!body.empty()) {
        body[place % body.size()] = static_cast<char>(value);
      }
    }
    out.Add(section.name, version, body);
  }
  return std::move(out).Take();
}

void RestoreDevices(const SavedState& state) {
  Devices devices;
  for (size_t at = 0; at < devices.transports.size() && at < state.devices.size(); ++at) {
    auto in = StateReader::Parse(state.devices[at].state);
    if (in && devices.transports[at]->Restore(*in)) {
      devices.transports[at]->KickAll();
    }
  }
  if (auto in = StateReader::Parse(state.serial); in && devices.serial.Restore(*in)) {
    devices.serial.RaisePending();
    for (uint16_t port = 0; port < SerialPort::kPortCount; ++port) {
      devices.serial.Read(port);
    }
  }
}

void Check(const std::string& bytes) {
  const auto state = SavedState::Decode(bytes);
  if (!state) {
    return;
  }
  const std::string again = state->Encode();
  const auto twice = SavedState::Decode(again);
  if (!twice || twice->Encode() != again) {
    std::abort();
  }
  RestoreDevices(*state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string valid = ValidState();
  fuzz::Input input(data, size);
  if (input.Take<uint8_t>() == 0) {
    Check(std::string(input.TakeText(1 << 20)));
    return 0;
  }
  std::string bytes = valid;
  for (size_t edit = 0; edit < kMaxEdits && !input.is_empty(); ++edit) {
    bytes = Edit(bytes, input);
  }
  Check(bytes);
  return 0;
}
