// The kernel file: any bytes as an ELF image loaded into a small guest.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "base/units.h"
#include "boot/kernel.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto memory = space::GuestMemory::Create(space::MiB(64));
  auto file = space::CreateMemfd("kernel");
  if (!memory || !file ||
      !space::WriteFull(file->get(), {reinterpret_cast<const char*>(data), size})) {
    return 0;
  }
  const auto kernel = space::boot::LoadKernel(*memory, *file);
  // What is loaded lies in memory, entry included.
  if (kernel) {
    SPACE_CHECK(memory->Slice(kernel->pvh_entry, 1).has_value());
    SPACE_CHECK(kernel->end.value <= memory->size_bytes());
  }
  return 0;
}
