#include "memory/guest_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "base/fd.h"
#include "base/units.h"
#include "layer/sparse_layer.h"

namespace space {
namespace {

constexpr uint64_t kHugePageBytes = MiB(2);

// A page behind the end of its file would be a SIGBUS at first touch.
Result<void> CheckCoverage(uint64_t page_count, std::span<const int> layer_fds,
                           const MemoryMap& map) {
  std::vector<uint64_t> end(layer_fds.size());
  for (const MemoryExtent& extent : map.extents()) {
    if (extent.layer >= layer_fds.size() || extent.end() > page_count) {
      return Fail(ErrorCode::kInvalidArgument, "memory map does not fit the memory or its layers");
    }
    end[extent.layer] = std::max(end[extent.layer], SparseLayer::FileOffset(extent.end()));
  }
  for (size_t layer = 0; layer < layer_fds.size(); ++layer) {
    const std::string name = "layer " + std::to_string(layer);
    SPACE_TRY(const uint64_t bytes, FileSize(layer_fds[layer]), name);
    if (bytes < end[layer]) {
      return Fail(ErrorCode::kInvalidArgument, "layer ends before its pages", name);
    }
  }
  return {};
}

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
  memory.flat_ = all;
  // A core dump of the VMM must not hold the guest's data.
  ::madvise(all.data(), size_bytes, MADV_DONTDUMP);
  const uint64_t low = std::min(size_bytes, kLowLimit);
  memory.regions_.push_back({GuestAddress{0}, all.first(low)});
  if (size_bytes > low) {
    memory.regions_.push_back({GuestAddress{kHighStart}, all.subspan(low)});
  }
  return memory;
}

Result<GuestMemory> GuestMemory::Map(uint64_t size_bytes, std::span<const int> layer_fds,
                                     const MemoryMap& map) {
  SPACE_TRY(GuestMemory memory, Create(size_bytes), "map guest memory");
  SPACE_TRY_VOID(CheckCoverage(size_bytes / kPageBytes, layer_fds, map), "map guest memory");
  for (const MemoryExtent& extent : map.extents()) {
    std::byte* const at = memory.flat_.data() + extent.first_page * kPageBytes;
    const uint64_t bytes = extent.page_count * kPageBytes;
    if (::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
               layer_fds[extent.layer],
               static_cast<off_t>(SparseLayer::FileOffset(extent.first_page))) == MAP_FAILED) {
      return FailErrno("map layer", std::to_string(extent.layer));
    }
  }
  // New mappings do not inherit it.
  ::madvise(memory.flat_.data(), size_bytes, MADV_DONTDUMP);
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
