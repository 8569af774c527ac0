// A virtual machine: memory, vCPUs, devices. Built, started, paused, saved and stopped by the
// device thread.
//
//   Create -> Run -> (Pause <-> Resume)* -> Close       Restore -> Resume -> ... -> Close
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "devices/serial/serial_log.h"
#include "devices/serial/serial_port.h"
#include "kvm/system.h"
#include "memory/guest_memory.h"
#include "vmm/bus.h"
#include "vmm/device_events.h"
#include "vmm/device_slot.h"
#include "vmm/device_table.h"
#include "vmm/exit_box.h"
#include "vmm/power_ports.h"
#include "vmm/restore_config.h"
#include "vmm/saved_state.h"
#include "vmm/start_config.h"
#include "vmm/vcpu_thread.h"

namespace space {

class BlockDevice;
class VsockDevice;

class Machine {
 public:
  // Builds everything but lets nothing run. Takes the descriptors out of `config`, except the exit
  // record. `system`, `loop` and `exit` outlive the machine.
  //   errors: kInvalidArgument for a kernel, initramfs or disk that is not one; else KVM's
  static Result<std::unique_ptr<Machine>> Create(const kvm::System& system, MachineConfig& config,
                                                 EventLoop& loop, ExitBox& exit,
                                                 const DeviceHooks& hooks);
  // The machine of a snapshot; it stands paused.
  //   errors: kInvalidArgument naming the layer, device or section that does not fit,
  //   kUnimplemented naming what this host's processor or KVM lacks
  static Result<std::unique_ptr<Machine>> Restore(const kvm::System& system, RestoreConfig& config,
                                                  EventLoop& loop, ExitBox& exit,
                                                  const DeviceHooks& hooks);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // Starts one thread per vCPU. Once, after Create.
  Result<void> Run();

  // vCPUs and devices stand still, and so does the guest's time, until Resume. Doing either twice
  // is fine. On failure nothing has changed.
  Result<void> Pause();
  Result<void> Resume();
  bool is_paused() const { return is_paused_; }

  // For a moment (a snapshot), without holding time or devices; the caller does not return to the
  // event loop between the two.
  void ParkVcpus();
  void UnparkVcpus();
  // All but the memory layers and their map. Parked or paused.
  Result<SavedState> Save() const;
  // Each writable disk's top is frozen and the next of `new_tops` takes the writes; as many as
  // there are writable disks. Descriptors of the frozen tops (the images own them).
  //   errors: those of LayeredImage::Freeze; with `done` disks frozen before
  Result<std::vector<int>> FreezeDisks(std::vector<UniqueFd> new_tops, size_t& done);
  // Sizes of the writable disks, in order.
  std::vector<uint64_t> WritableDisks() const;
  const GuestMemory& memory() const { return memory_; }
  const std::vector<LayerId>& memory_layers() const { return memory_layers_; }
  const MemoryMap& memory_map() const { return memory_map_; }

  // Returns when no vCPU runs any more. May be called again.
  void Stop();
  // Stop, then closes the devices, so that what they hold is in their files. Nothing but Explain
  // and the destructor (which waits for KVM, tens of milliseconds) may follow.
  void Close();

  // Opens a stream to a vsock port of the guest; as VsockDevice::Connect. kConflict while paused.
  void Connect(uint32_t guest_port, UniqueFd stream,
               std::function<void(Result<void>)> on_connected);
  // Times that the guest broke a device of its own.
  uint64_t guest_faults();
  // Exits of all vCPUs, and accesses that no device answered.
  uint64_t exits() const;
  uint64_t unclaimed() const { return mmio_.unclaimed() + ports_.unclaimed(); }

  // What a failure really was: a guest that panicked leaves a mark (boot/layout.h); what KVM says
  // of memory whose layer was cut depends on who touched it. After Stop.
  wire::Exit Explain(wire::Exit exit) const;

 private:
  struct Disk {
    BlockDevice* device;
    SavedDisk saved;  // without layers
  };

  Machine(const kvm::System& system, GuestMemory memory, kvm::Vm vm, ExitBox& exit);
  // Everything around the vCPUs.
  static Result<std::unique_ptr<Machine>> Build(const kvm::System& system, GuestMemory memory,
                                                MachineConfig& config, EventLoop& loop,
                                                ExitBox& exit, const DeviceHooks& hooks);
  Result<void> AddSerial(MachineConfig& config);
  Result<void> AddDevices(MachineConfig& config, const DeviceHooks& hooks);
  Result<void> LoadGuest(const MachineConfig& config);
  Result<void> AddVcpus(uint32_t count);
  void StartThreads(VcpuThread::Start start);

  // machine_state.cc
  Result<void> RestoreVcpus(const SavedState& state);
  bool IsLayerCut() const;
  Result<void> CheckDiskLayers(const SavedState& state) const;
  Result<void> RestoreDevices(const SavedState& state);
  Result<kvm::GuestTime> ReadTime() const;
  Result<void> SetTime(const kvm::GuestTime& time);
  kvm::Vcpu& vcpu(size_t at) const { return threads_[at]->vcpu(); }

  // A COM1 on the port bus.
  class SerialPorts final : public BusDevice {
   public:
    explicit SerialPorts(SerialPort& port) : port_(&port) {}
    void Read(uint64_t offset, std::span<std::byte> into) override;
    void Write(uint64_t offset, std::span<const std::byte> from) override;

   private:
    SerialPort* port_;
  };

  // In the order in which they depend on each other: vCPUs end first, memory last.
  const kvm::System* system_;
  GuestMemory memory_;
  kvm::Vm vm_;
  ExitBox* exit_;
  std::vector<LayerId> memory_layers_;  // that it was restored from; empty when booted
  std::vector<UniqueFd> layer_files_;   // of these
  MemoryMap memory_map_;
  Bus mmio_;
  Bus ports_;
  AcpiPowerPorts acpi_ports_;
  KeyboardResetPort keyboard_port_;
  std::unique_ptr<SerialLog> serial_log_;
  UniqueFd serial_interrupt_;
  std::unique_ptr<SerialPort> serial_port_;
  std::unique_ptr<SerialPorts> serial_ports_;
  std::unique_ptr<DeviceEvents> events_;
  std::vector<std::unique_ptr<DeviceSlot>> slots_;
  std::vector<std::string> slot_names_;  // row of the device table, per slot
  std::vector<Disk> disks_;
  DeviceSlot* vsock_slot_ = nullptr;
  VsockDevice* vsock_ = nullptr;
  GuestAddress entry_;
  bool is_paused_ = false;
  bool is_fresh_ = false;         // restored and not yet resumed
  kvm::GuestTime paused_at_;      // while paused
  std::vector<kvm::Vcpu> vcpus_;  // until they have threads
  std::vector<std::unique_ptr<VcpuThread>> threads_;
};

}  // namespace space
