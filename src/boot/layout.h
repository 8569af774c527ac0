// Where what the boot code writes lies in guest-physical memory. All of it is below 1 MiB; kernels
// are loaded above. Nothing here is guest-controlled.
#pragma once

#include <cstdint>

#include "memory/guest_memory.h"

namespace space::boot {

// Left by Linux before every restart: kWarmRebootFlag when reboot_mode is "warm". Our command line
// makes that the mode of a restart after a panic alone (command_line.h).
constexpr GuestAddress kRebootFlag{0x472};
constexpr uint16_t kWarmRebootFlag = 0x1234;

constexpr GuestAddress kStartInfo{0x6000};
constexpr GuestAddress kModuleList{0x6100};
constexpr GuestAddress kMemoryMap{0x7000};
constexpr GuestAddress kCommandLine{0x20000};
constexpr uint64_t kMaxCommandLineBytes = 4096;  // with its final zero

constexpr GuestAddress kLowRamEnd{0x9fc00};  // from here to 1 MiB: reserved, holds the ACPI tables
constexpr GuestAddress kRsdp{0xe0000};       // where a BIOS has it, for kernels that search
constexpr GuestAddress kAcpiTables{0xe1000};
constexpr GuestAddress kKernelMinimum{0x100000};

static_assert(kAcpiTables < kKernelMinimum && kLowRamEnd < kRsdp);
static_assert(kCommandLine.value + kMaxCommandLineBytes <= kLowRamEnd.value);

// Of the chips inside KVM.
constexpr uint32_t kIoApicAddress = 0xfec00000;
constexpr uint32_t kLocalApicAddress = 0xfee00000;
constexpr uint32_t kIoApicPins = 24;

}  // namespace space::boot
