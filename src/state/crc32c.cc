#include "state/crc32c.h"

#include <array>
#include <cstring>

namespace space {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    }
    table[byte] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

uint32_t Portable(std::string_view bytes, uint32_t crc) {
  for (const char byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return crc;
}

[[gnu::target("sse4.2")]] uint32_t Native(std::string_view bytes, uint32_t crc) {
  uint64_t wide = crc;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    wide = __builtin_ia32_crc32di(wide, word);
    bytes.remove_prefix(sizeof(word));
  }
  crc = static_cast<uint32_t>(wide);
  for (const char byte : bytes) {
    crc = __builtin_ia32_crc32qi(crc, static_cast<unsigned char>(byte));
  }
  return crc;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes, uint32_t before) {
  // Not a static: its guard could be held for ever in a child of fork.
  const bool is_native = __builtin_cpu_supports("sse4.2") != 0;
  return ~(is_native ? Native(bytes, ~before) : Portable(bytes, ~before));
}

}  // namespace space
