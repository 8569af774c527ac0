// What is in the state file of a snapshot, beside its layers: all that a machine needs to stand
// there again. Encoded as sections (state/state.h), so that later versions read it; the bytes are
// foreign, so Decode checks sizes, counts and ranges. What only KVM or a device can judge is judged
// when it is restored.
//
//   machine      vCPUs, memory size, whether there is a serial port
//   time         kvmclock and each vCPU's TSC and timer deadline when it stood
//   vm           the three interrupt chips
//   vcpu.N       a state of its own: cpuid, mp_state, registers, special, xsave, fpu, xcrs, debug,
//                apic, tsc_khz, msrs, events
//   disks        per disk: id, size, read-only, raw bottom, ids of its frozen sparse layers
//   memory       ids of the layers bottom first, and the map (memory/memory_map.h)
//   serial       devices/serial/serial_port.h
//   device.N     a state of its own: section "name", then the transport's and the device's
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvm/vcpu_state.h"
#include "layer/sparse_layer.h"
#include "memory/memory_map.h"

namespace space {

struct SavedDisk {
  std::string id;
  uint64_t size_bytes = 0;
  bool is_read_only = false;
  bool has_raw_bottom = false;
  std::vector<LayerId> layers;  // sparse ones that the snapshot stands on, bottom first
};

struct SavedDevice {
  std::string name;   // row of the device table
  std::string state;  // sections of transport and device
};

struct SavedState {
  static constexpr uint64_t kMaxBytes = 16 << 20;
  static constexpr size_t kMaxDevices = 32;
  static constexpr size_t kMaxDiskLayers = 64;

  uint64_t memory_bytes = 0;
  bool has_serial = false;
  kvm::VmState vm;  // its clock_ns is time's
  kvm::GuestTime time;
  std::vector<kvm::VcpuState> vcpus;
  std::string serial;  // section of the serial port, when there is one
  std::vector<SavedDevice> devices;
  std::vector<SavedDisk> disks;
  std::vector<LayerId> memory_layers;
  MemoryMap memory_map;

  std::string Encode() const;
  // kInvalidArgument, naming the section; kUnimplemented never: a later version says so as
  // kInvalidArgument, too.
  static Result<SavedState> Decode(std::string_view bytes);
};

}  // namespace space
