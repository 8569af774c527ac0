#include "vmm/machine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "boot/acpi.h"
#include "boot/command_line.h"
#include "boot/kernel.h"
#include "boot/layout.h"
#include "boot/pvh.h"
#include "devices/block/block_device.h"
#include "devices/vsock/vsock_device.h"
#include "vmm/cpuid.h"
#include "vmm/vcpu_setup.h"

namespace space {

Machine::Machine(const kvm::System& system, GuestMemory memory, kvm::Vm vm, ExitBox& exit)
    : system_(&system),
      memory_(std::move(memory)),
      vm_(std::move(vm)),
      exit_(&exit),
      acpi_ports_(exit),
      keyboard_port_(exit) {
  acpi_ports_.AddTo(ports_);
  keyboard_port_.AddTo(ports_);
}

Machine::~Machine() { Stop(); }

Result<std::unique_ptr<Machine>> Machine::Build(const kvm::System& system, GuestMemory memory,
                                                MachineConfig& config, EventLoop& loop,
                                                ExitBox& exit, const DeviceHooks& hooks) {
  SPACE_TRY(kvm::Vm vm, system.CreateVm(), "make VM");
  auto machine =
      std::unique_ptr<Machine>(new Machine(system, std::move(memory), std::move(vm), exit));
  SPACE_TRY(machine->events_, DeviceEvents::Create(loop), "make VM");
  // Memory before the interrupt chip: kvm/vm.h says why.
  SPACE_TRY_VOID(machine->vm_.SetMemory(machine->memory_), "make VM");
  SPACE_TRY_VOID(machine->vm_.CreateInterruptChip(), "make VM");
  SPACE_TRY_VOID(machine->AddSerial(config), "make serial port");
  SPACE_TRY_VOID(machine->AddDevices(config, hooks), "make devices");
  return machine;
}

Result<std::unique_ptr<Machine>> Machine::Create(const kvm::System& system, MachineConfig& config,
                                                 EventLoop& loop, ExitBox& exit,
                                                 const DeviceHooks& hooks) {
  SPACE_TRY(GuestMemory memory, GuestMemory::Create(config.memory_bytes), "make memory");
  SPACE_TRY(std::unique_ptr<Machine> machine,
            Build(system, std::move(memory), config, loop, exit, hooks), "");
  SPACE_TRY_VOID(machine->LoadGuest(config), "load guest");
  SPACE_TRY_VOID(machine->AddVcpus(config.vcpus), "make vCPUs");
  return machine;
}

Result<void> Machine::AddSerial(MachineConfig& config) {
  if (config.serial_limit_bytes == 0) {
    return {};
  }
  serial_interrupt_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!serial_interrupt_.valid()) {
    return FailErrno("create eventfd");
  }
  SPACE_TRY_VOID(vm_.AddIrqEvent(serial_interrupt_, SerialPort::kIrq), "serial interrupt");
  serial_log_ = std::make_unique<SerialLog>(std::move(config.serial_log), config.serial_limit_bytes,
                                            log::Timestamp);
  serial_port_ = std::make_unique<SerialPort>(*serial_log_, [this] {
    constexpr uint64_t kOne = 1;
    [[maybe_unused]] const ssize_t written = ::write(serial_interrupt_.get(), &kOne, sizeof(kOne));
  });
  serial_ports_ = std::make_unique<SerialPorts>(*serial_port_);
  ports_.Add(SerialPort::kBasePort, SerialPort::kPortCount, *serial_ports_);
  return {};
}

Result<void> Machine::AddDevices(MachineConfig& config, const DeviceHooks& hooks) {
  for (const DeviceRow& row : DeviceTable()) {
    const size_t count = row.count(config);
    for (size_t index = 0; index < count; ++index) {
      SPACE_TRY(std::unique_ptr<DeviceSlot> slot,
                DeviceSlot::Create(static_cast<uint32_t>(slots_.size()), events_->watches()),
                row.name);
      SPACE_TRY(std::unique_ptr<VirtioDevice> device, row.create(config, index, *slot, hooks),
                row.name);
      if (device->type() == DeviceType::kVsock) {
        vsock_slot_ = slot.get();
        vsock_ = static_cast<VsockDevice*>(device.get());
      }
      if (device->type() == DeviceType::kBlock) {
        const DiskConfig& disk = config.disks[index];
        disks_.push_back({static_cast<BlockDevice*>(device.get()),
                          {disk.id, disk.size_bytes, disk.is_read_only, disk.has_raw_bottom, {}}});
      }
      slot_names_.emplace_back(row.name);
      slots_.push_back(std::move(slot));
      SPACE_TRY_VOID(slots_.back()->Attach(std::move(device), memory_, vm_, mmio_), row.name);
    }
  }
  return {};
}

Result<void> Machine::LoadGuest(const MachineConfig& config) {
  SPACE_TRY(const boot::LoadedKernel kernel, boot::LoadKernel(memory_, config.kernel), "boot");
  SPACE_TRY(const boot::LoadedInitramfs initramfs,
            boot::LoadInitramfs(memory_, config.initramfs, kernel), "boot");
  const bool has_serial = serial_port_ != nullptr;
  std::string command_line = boot::DefaultCommandLine(has_serial);
  if (!config.command_line.empty()) {
    command_line += " " + config.command_line;
  }
  SPACE_TRY_VOID(boot::WriteStartInfo(memory_, initramfs, command_line), "boot");
  boot::AcpiConfig acpi{config.vcpus, {}, has_serial};
  for (const std::unique_ptr<DeviceSlot>& slot : slots_) {
    acpi.devices.push_back({slot->window(), MmioTransport::kWindowBytes, slot->gsi()});
  }
  SPACE_TRY_VOID(boot::WriteAcpiTables(memory_, acpi), "boot");
  entry_ = kernel.pvh_entry;
  return {};
}

Result<void> Machine::AddVcpus(uint32_t count) {
  for (uint32_t id = 0; id < count; ++id) {
    SPACE_TRY(kvm::Vcpu vcpu, vm_.CreateVcpu(id), "make vCPU");
    SPACE_TRY_VOID(vcpu.SetCpuid(CpuidFor(system_->supported_cpuid(), id, count)), "make vCPU");
    SPACE_TRY_VOID(SetUpVcpu(vcpu), "make vCPU");
    if (id == 0) {
      SPACE_TRY_VOID(SetUpPvhEntry(vcpu, entry_, boot::kStartInfo), "make vCPU");
    }
    vcpus_.push_back(std::move(vcpu));
  }
  return {};
}

void Machine::StartThreads(VcpuThread::Start start) {
  for (uint32_t id = 0; id < vcpus_.size(); ++id) {
    threads_.push_back(
        std::make_unique<VcpuThread>(id, std::move(vcpus_[id]), mmio_, ports_, *exit_, start));
  }
  vcpus_.clear();
}

Result<void> Machine::Run() {
  SPACE_TRY_VOID(events_->Release(), "run machine");
  StartThreads(VcpuThread::Start::kRunning);
  return {};
}

void Machine::Stop() {
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    thread->Stop();
  }
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    thread->Join();
  }
  if (serial_log_) {
    serial_log_->Flush();
  }
}

void Machine::Close() {
  Stop();
  vsock_ = nullptr;
  vsock_slot_ = nullptr;
  disks_.clear();
  slots_.clear();
}

uint64_t Machine::exits() const {
  uint64_t exits = 0;
  for (const std::unique_ptr<VcpuThread>& thread : threads_) {
    exits += thread->exits();
  }
  return exits;
}

void Machine::Connect(uint32_t guest_port, UniqueFd stream,
                      std::function<void(Result<void>)> on_connected) {
  if (is_paused_) {
    return on_connected(Fail(ErrorCode::kConflict, "the VM is paused"));
  }
  vsock_slot_->transport().WithLock(
      [&] { vsock_->Connect(guest_port, std::move(stream), std::move(on_connected)); });
}

uint64_t Machine::guest_faults() {
  uint64_t faults = 0;
  for (const std::unique_ptr<DeviceSlot>& slot : slots_) {
    faults += slot->transport().guest_faults();
  }
  return faults;
}

wire::Exit Machine::Explain(wire::Exit exit) const {
  const bool may_be_loss = exit.reason == wire::ExitReason::kInternalError ||
                           exit.reason == wire::ExitReason::kTripleFault;
  if (may_be_loss && IsLayerCut()) {
    exit.reason = wire::ExitReason::kLayerLost;
  } else if (exit.reason == wire::ExitReason::kLayerLost && memory_layers_.empty()) {
    exit.reason = wire::ExitReason::kInternalError;
  }
  const bool is_restart =
      exit.reason == wire::ExitReason::kGuestReset || exit.reason == wire::ExitReason::kTripleFault;
  if (!is_restart || IsLayerCut()) {
    return exit;  // what was cut may not be read
  }
  const Result<uint16_t> flag = memory_.Read<uint16_t>(boot::kRebootFlag);
  if (flag && *flag == boot::kWarmRebootFlag) {
    exit.reason = wire::ExitReason::kGuestPanic;
    exit.detail = serial_log_ ? serial_log_->panic() : std::string();
  }
  return exit;
}

void Machine::SerialPorts::Read(uint64_t offset, std::span<std::byte> into) {
  for (std::byte& byte : into) {
    byte = std::byte{port_->Read(static_cast<uint16_t>(offset++))};
  }
}

void Machine::SerialPorts::Write(uint64_t offset, std::span<const std::byte> from) {
  for (const std::byte byte : from) {
    port_->Write(static_cast<uint16_t>(offset++), static_cast<uint8_t>(byte));
  }
}

}  // namespace space
