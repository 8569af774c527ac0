// A virtual machine: memory, vCPUs, devices. Built, started and stopped by the device thread.
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
#include "vmm/device_slot.h"
#include "vmm/device_table.h"
#include "vmm/exit_box.h"
#include "vmm/power_ports.h"
#include "vmm/start_config.h"
#include "vmm/vcpu_thread.h"

namespace space {

class VsockDevice;

class Machine {
 public:
  // Builds everything but lets nothing run. Takes the descriptors out of `config`, except the exit
  // record. `loop` and `exit` outlive the machine.
  //   errors: kInvalidArgument for a kernel, initramfs or disk that is not one; else KVM's
  static Result<std::unique_ptr<Machine>> Create(const kvm::System& system, MachineConfig& config,
                                                 EventLoop& loop, ExitBox& exit,
                                                 const DeviceHooks& hooks);
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine();

  // Starts one thread per vCPU. Once.
  void Run();
  // Returns when no vCPU runs any more. May be called again.
  void Stop();
  // Stop, then closes the devices, so that what they hold is in their files. Nothing but Explain
  // and the destructor (which waits for KVM, tens of milliseconds) may follow.
  void Close();

  // Opens a stream to a vsock port of the guest; as VsockDevice::Connect.
  void Connect(uint32_t guest_port, UniqueFd stream,
               std::function<void(Result<void>)> on_connected);
  // Times that the guest broke a device of its own.
  uint64_t guest_faults();
  // Exits of all vCPUs, and accesses that no device answered.
  uint64_t exits() const;
  uint64_t unclaimed() const { return mmio_.unclaimed() + ports_.unclaimed(); }

  // What a reset or triple fault really was: a guest that panicked leaves a mark (boot/layout.h).
  // After Stop.
  wire::Exit Explain(wire::Exit exit) const;

 private:
  Machine(GuestMemory memory, kvm::Vm vm, ExitBox& exit);
  Result<void> AddSerial(MachineConfig& config);
  Result<void> AddDevices(MachineConfig& config, EventLoop& loop, const DeviceHooks& hooks);
  Result<void> LoadGuest(const MachineConfig& config);
  Result<void> AddVcpus(const kvm::System& system, uint32_t count);

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
  GuestMemory memory_;
  kvm::Vm vm_;
  ExitBox* exit_;
  Bus mmio_;
  Bus ports_;
  AcpiPowerPorts acpi_ports_;
  KeyboardResetPort keyboard_port_;
  std::unique_ptr<SerialLog> serial_log_;
  UniqueFd serial_interrupt_;
  std::unique_ptr<SerialPort> serial_port_;
  std::unique_ptr<SerialPorts> serial_ports_;
  std::vector<std::unique_ptr<DeviceSlot>> slots_;
  DeviceSlot* vsock_slot_ = nullptr;
  VsockDevice* vsock_ = nullptr;
  GuestAddress entry_;
  std::vector<kvm::Vcpu> vcpus_;  // until Run
  std::vector<std::unique_ptr<VcpuThread>> threads_;
};

}  // namespace space
