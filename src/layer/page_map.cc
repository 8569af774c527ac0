#include "layer/page_map.h"

#include <cstring>
#include <string_view>

#include "state/crc32c.h"

namespace space {
namespace {

uint32_t CrcOf(const PageMapBlock& block) {
  const std::span<const std::byte> covered = block.bytes().subspan(sizeof(block.crc));
  return Crc32c({reinterpret_cast<const char*>(covered.data()), covered.size()});
}

}  // namespace

bool PageMapBlock::is_hole() const {
  // Equal to itself one word on, and the first word zero.
  const std::span<const std::byte> all = bytes();
  return crc == 0 && reserved == 0 &&
         std::memcmp(all.data(), all.data() + kWordBytes, all.size() - kWordBytes) == 0;
}

bool PageMapBlock::is_intact() const {
  // The state 3 does not exist: both bits of one page set.
  constexpr uint64_t kLowBits = 0x5555555555555555;
  uint64_t unknown = 0;
  for (size_t at = 0; at < kStateBytes; at += kWordBytes) {
    const uint64_t word = WordOf(at);
    unknown |= word & (word >> 1) & kLowBits;
  }
  return unknown == 0 && reserved == 0 && crc == CrcOf(*this);
}

void PageMapBlock::Seal() { crc = CrcOf(*this); }

}  // namespace space
