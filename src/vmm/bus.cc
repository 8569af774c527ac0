#include "vmm/bus.h"

#include <algorithm>

#include "base/result.h"

namespace space {

void Bus::Add(uint64_t start, uint64_t size, BusDevice& device) {
  const auto behind = std::ranges::upper_bound(ranges_, start, {}, &Range::start);
  SPACE_CHECK(size != 0 && (behind == ranges_.end() || start + size <= behind->start));
  SPACE_CHECK(behind == ranges_.begin() ||
              std::prev(behind)->start + std::prev(behind)->size <= start);
  ranges_.insert(behind, Range{start, size, &device});
}

const Bus::Range* Bus::Find(uint64_t at, size_t length) const {
  const auto behind = std::ranges::upper_bound(ranges_, at, {}, &Range::start);
  if (behind == ranges_.begin()) {
    return nullptr;
  }
  const Range& range = *std::prev(behind);
  const uint64_t offset = at - range.start;
  return offset < range.size && length <= range.size - offset ? &range : nullptr;
}

void Bus::Read(uint64_t at, std::span<std::byte> into) {
  if (const Range* range = Find(at, into.size())) {
    range->device->Read(at - range->start, into);
    return;
  }
  unclaimed_.fetch_add(1, std::memory_order_relaxed);
  std::ranges::fill(into, std::byte{0xff});
}

void Bus::Write(uint64_t at, std::span<const std::byte> from) {
  if (const Range* range = Find(at, from.size())) {
    range->device->Write(at - range->start, from);
    return;
  }
  unclaimed_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace space
