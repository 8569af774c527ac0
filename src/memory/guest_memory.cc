#include "memory/guest_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/units.h"

namespace space {
namespace {

constexpr uint64_t kHugePageBytes = MiB(2);

}  // namespace

Result<GuestMemory> GuestMemory::Create(uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes % kPageBytes != 0) {
    return Fail(ErrorCode::kInvalidArgument, "memory size is not a multiple of 4096 bytes");
  }
  GuestMemory memory;
  memory.size_bytes_ = size_bytes;
  // Guest-physical and host addresses agree modulo 2 MiB, or neither the host nor KVM's nested
  // tables could use huge pages; Linux before 6.7 does not align by itself.
  SPACE_TRY(memory.mapping_,
            Mapping::Create(-1, size_bytes + kHugePageBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE),
            "map guest memory");
  const auto address = reinterpret_cast<uintptr_t>(memory.mapping_.bytes().data());
  const std::span<std::byte> all = memory.mapping_.bytes().subspan(
      (kHugePageBytes - address % kHugePageBytes) % kHugePageBytes, size_bytes);
  // A core dump of the VMM must not hold the guest's data.
  ::madvise(all.data(), size_bytes, MADV_DONTDUMP);
  const uint64_t low = std::min(size_bytes, kLowLimit);
  memory.regions_.push_back({GuestAddress{0}, all.first(low)});
  if (size_bytes > low) {
    memory.regions_.push_back({GuestAddress{kHighStart}, all.subspan(low)});
  }
  return memory;
}

Result<std::span<std::byte>> GuestMemory::Slice(GuestAddress at, uint64_t length) const {
  for (const Region& region : regions_) {
    const uint64_t size = region.bytes.size();
    if (at < region.start || length == 0 || length > size) {
      continue;
    }
    const uint64_t offset = at.value - region.start.value;
    if (offset <= size - length) {
      return region.bytes.subspan(offset, length);
    }
  }
  return Fail(ErrorCode::kGuestFault, "address outside guest memory");
}

Result<void> GuestMemory::WriteBytes(GuestAddress at, std::span<const std::byte> from) const {
  SPACE_TRY(const std::span<std::byte> bytes, Slice(at, from.size()), "write guest memory");
  std::ranges::copy(from, bytes.begin());
  return {};
}

}  // namespace space
