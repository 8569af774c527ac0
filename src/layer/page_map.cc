#include "layer/page_map.h"

#include <algorithm>
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
  return std::ranges::all_of(bytes(), [](std::byte byte) { return byte == std::byte{0}; });
}

bool PageMapBlock::is_intact() const {
  // The state 3 does not exist: both bits of one page set.
  return crc == CrcOf(*this) && reserved == 0 && std::ranges::none_of(states, [](uint8_t four) {
           return (four & (four >> 1) & 0x55) != 0;
         });
}

void PageMapBlock::Seal() { crc = CrcOf(*this); }

}  // namespace space
