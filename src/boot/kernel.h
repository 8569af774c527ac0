// Puts an uncompressed x86-64 ELF kernel (vmlinux) into guest memory. The file is checked as if it
// were hostile: a template may name any file as its kernel.
#pragma once

#include "base/fd.h"
#include "memory/guest_memory.h"

namespace space::boot {

struct LoadedKernel {
  GuestAddress pvh_entry;  // 32-bit entry point of the PVH boot protocol
  GuestAddress start;      // first byte of the first segment, at least kKernelMinimum
  GuestAddress end;        // first free byte behind the last segment
};

// errors: kInvalidArgument, text beginning with "kernel"; kIo when the file cannot be read
// spec:   ELF-64; Xen's docs/misc/pvh: note "Xen", type 18 (XEN_ELFNOTE_PHYS32_ENTRY)
Result<LoadedKernel> LoadKernel(const GuestMemory& memory, const UniqueFd& image);

struct LoadedInitramfs {
  GuestAddress start;
  uint64_t size_bytes = 0;
};

// Reads the whole file to the top of the low memory, page-aligned; below the kernel when there is
// no room above it (a stock kernel ends at 62 MiB and starts at 16). errors: kInvalidArgument when
// it is empty or fits in neither place
Result<LoadedInitramfs> LoadInitramfs(const GuestMemory& memory, const UniqueFd& image,
                                      const LoadedKernel& kernel);

}  // namespace space::boot
