// A memory map of foreign bytes: what is accepted must be sound and survive a round trip.
#include "base/result.h"
#include "input.h"
#include "memory/memory_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace space;
  fuzz::Input input(data, size);
  const uint64_t pages = input.Take<uint16_t>();
  const uint32_t layers = input.Take<uint8_t>();
  const auto map = MemoryMap::Decode(input.TakeText(size), pages, layers);
  if (!map.has_value()) {
    return 0;
  }
  uint64_t end = 0;
  SPACE_CHECK(map->extents().size() <= MemoryMap::kMaxExtents);
  for (const MemoryExtent& extent : map->extents()) {
    SPACE_CHECK(extent.first_page >= end && extent.page_count > 0 && extent.end() <= pages);
    SPACE_CHECK(extent.layer < layers);
    end = extent.end();
  }
  SPACE_CHECK(*MemoryMap::Decode(map->Encode(), pages, layers) == *map);
  return 0;
}
