// The ports by which a guest turns itself off or restarts: the ACPI registers that boot/acpi.h
// announces, and the keyboard controller's reset line, which Linux tries next.
#pragma once

#include "vmm/bus.h"
#include "vmm/exit_box.h"

namespace space {

class AcpiPowerPorts final : public BusDevice {
 public:
  explicit AcpiPowerPorts(ExitBox& exit) : exit_(&exit) {}
  // Adds itself to the port bus.
  void AddTo(Bus& ports);
  void Read(uint64_t offset, std::span<std::byte> into) override;
  void Write(uint64_t offset, std::span<const std::byte> from) override;

 private:
  ExitBox* exit_;
};

class KeyboardResetPort final : public BusDevice {
 public:
  explicit KeyboardResetPort(ExitBox& exit) : exit_(&exit) {}
  void AddTo(Bus& ports);
  // Status 0: both buffers empty. All ones would make the kernel wait for them.
  void Read(uint64_t offset, std::span<std::byte> into) override;
  void Write(uint64_t offset, std::span<const std::byte> from) override;

 private:
  ExitBox* exit_;
};

}  // namespace space
