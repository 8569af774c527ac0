// The ACPI tables: hardware-reduced, so that Linux needs no PIT, PIC or RTC. Spec: ACPI 6.4.
//
//   RSDP -> XSDT -> FADT -> DSDT (virtio-mmio devices, COM1, S5)
//                -> MADT (I/O APIC, one local APIC per vCPU)
#pragma once

#include <cstdint>
#include <vector>

#include "memory/guest_memory.h"

namespace space::boot {

// Byte-wide ports that the FADT names and the VMM serves.
constexpr uint16_t kSleepControlPort = 0x600;  // write: bits 2-4 sleep type, bit 5 go (4.8.3.7)
constexpr uint16_t kSleepStatusPort = 0x601;
constexpr uint16_t kResetPort = 0x602;
constexpr uint8_t kResetValue = 0x01;
constexpr uint8_t kSleepTypeOff = 5;  // \_S5 in the DSDT
constexpr uint8_t kSleepEnable = 1 << 5;
constexpr uint8_t kSleepTypeShift = 2;

struct AcpiDevice {
  uint32_t start = 0;  // virtio-mmio window
  uint32_t size_bytes = 0;
  uint32_t gsi = 0;
};

struct AcpiConfig {
  uint32_t vcpus = 1;               // local APIC ids 0 to vcpus - 1
  std::vector<AcpiDevice> devices;  // at most 256; device n is \_SB.Vnn with _UID n
  bool has_serial = false;          // COM1, 0x3f8, interrupt 4
};

Result<void> WriteAcpiTables(const GuestMemory& memory, const AcpiConfig& config);

}  // namespace space::boot
