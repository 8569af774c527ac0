#include "vmm/power_ports.h"

#include <algorithm>

#include "boot/acpi.h"

namespace space {
namespace {

constexpr uint64_t kPortCount = 3;
static_assert(boot::kSleepStatusPort - boot::kSleepControlPort == 1 &&
              boot::kResetPort - boot::kSleepControlPort == 2);

constexpr uint8_t kSleepTypeMask = 0x7;

constexpr uint64_t kKeyboardPort = 0x64;
constexpr std::byte kPulseReset{0xfe};

}  // namespace

void AcpiPowerPorts::AddTo(Bus& ports) { ports.Add(boot::kSleepControlPort, kPortCount, *this); }

void AcpiPowerPorts::Read(uint64_t /*offset*/, std::span<std::byte> into) {
  std::ranges::fill(into, std::byte{0});
}

void AcpiPowerPorts::Write(uint64_t offset, std::span<const std::byte> from) {
  const auto value = static_cast<uint8_t>(from.front());
  if (offset == 0 && (value & boot::kSleepEnable) != 0 &&
      ((value >> boot::kSleepTypeShift) & kSleepTypeMask) == boot::kSleepTypeOff) {
    exit_->Report(wire::ExitReason::kGuestShutdown);
  }
  if (boot::kSleepControlPort + offset == boot::kResetPort && value == boot::kResetValue) {
    exit_->Report(wire::ExitReason::kGuestReset);
  }
}

void KeyboardResetPort::AddTo(Bus& ports) { ports.Add(kKeyboardPort, 1, *this); }

void KeyboardResetPort::Read(uint64_t /*offset*/, std::span<std::byte> into) {
  std::ranges::fill(into, std::byte{0});
}

void KeyboardResetPort::Write(uint64_t /*offset*/, std::span<const std::byte> from) {
  if (from.front() == kPulseReset) {
    exit_->Report(wire::ExitReason::kGuestReset);
  }
}

}  // namespace space
