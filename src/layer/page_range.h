// Neighbouring pages of an image, 4096 bytes each.
#pragma once

#include <cstdint>

namespace space {

struct PageRange {
  uint64_t first = 0;
  uint64_t count = 0;

  uint64_t end() const { return first + count; }
  friend bool operator==(PageRange, PageRange) = default;
};

}  // namespace space
