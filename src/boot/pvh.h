// What a PVH kernel is handed: start info, memory map, initramfs, command line, and the registers
// of the boot processor. Spec: Xen, xen/include/public/arch-x86/hvm/start_info.h, version 1.
#pragma once

#include <string>

#include "boot/kernel.h"
#include "memory/guest_memory.h"

namespace space::boot {

// Writes all of it below 1 MiB.
// errors: kInvalidArgument when the command line is too long or holds a zero
Result<void> WriteStartInfo(const GuestMemory& memory, const LoadedInitramfs& initramfs,
                            const std::string& command_line);

}  // namespace space::boot
