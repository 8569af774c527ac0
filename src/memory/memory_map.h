// Which layer file each page of guest memory comes from. Page numbers are of the flat memory
// (0 up to its size / 4096), not guest-physical. Pages in no extent are zero. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "layer/page_range.h"

namespace space {

struct MemoryExtent {
  uint64_t first_page = 0;
  uint64_t page_count = 0;
  uint32_t layer = 0;  // place in the chain, 0 is the bottom

  uint64_t end() const { return first_page + page_count; }
  friend bool operator==(const MemoryExtent&, const MemoryExtent&) = default;
};

class MemoryMap {
 public:
  // Each is a mapping of every machine restored from it: bounds their cost and kernel memory.
  static constexpr size_t kMaxExtents = 512;
  static constexpr uint32_t kMaxLayers = 255;

  MemoryMap() = default;  // no extents: all zero, as a booted machine begins
  // Extents ascending, disjoint, not empty, below `memory_pages`, of layers below `layer_count`, at
  // most kMaxExtents. Neighbours that continue each other become one.
  //   errors: kInvalidArgument naming the extent
  static Result<MemoryMap> Create(std::span<const MemoryExtent> extents, uint64_t memory_pages,
                                  uint32_t layer_count);

  const std::vector<MemoryExtent>& extents() const { return extents_; }

  // count u32, then per extent first_page u64, page_count u64, layer u32.
  std::string Encode() const;
  // Foreign bytes; same checks as Create, and nothing may be left over.
  static Result<MemoryMap> Decode(std::string_view bytes, uint64_t memory_pages,
                                  uint32_t layer_count);

  friend bool operator==(const MemoryMap&, const MemoryMap&) = default;

 private:
  std::vector<MemoryExtent> extents_;
};

// The extents of `below` that come from layers under `kept_layers`, with `runs` (ascending,
// disjoint) laid over them as layer `kept_layers`. May be more than kMaxExtents.
std::vector<MemoryExtent> Overlay(const MemoryMap& below, std::span<const PageRange> runs,
                                  uint32_t kept_layers);

}  // namespace space
