// CRC-32C (Castagnoli), as in iSCSI and ext4. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace space {

// Of `bytes`, going on from `before` (0 at the start): Crc32c(b, Crc32c(a)) == Crc32c(a + b).
uint32_t Crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace space
