// One block of a sparse layer's page map as it lies in the file (sparse_layer.h). Everything here
// is async-signal-safe: the child that writes a frozen layer uses it after fork. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace space {

enum class PageState : uint8_t { kAbsent = 0, kPresent = 1, kZero = 2 };

struct PageMapBlock {
  static constexpr size_t kStateBytes = 4088;
  static constexpr uint64_t kPages = kStateBytes * 4;
  static constexpr size_t kWordBytes = 8;  // 32 pages looked at together

  uint32_t crc = 0;  // CRC-32C of all behind it
  uint32_t reserved = 0;
  std::array<uint8_t, kStateBytes> states{};

  static uint64_t CountFor(uint64_t page_count) { return (page_count + kPages - 1) / kPages; }
  // Where block `index` of a layer of `page_count` pages lies in its file.
  static uint64_t FileOffset(uint64_t page_count, uint64_t index) {
    return (1 + page_count + index) * 4096;
  }

  // `within` below kPages.
  PageState StateOf(uint64_t within) const {
    return static_cast<PageState>((states[within / 4] >> (within % 4 * 2)) & 3);
  }
  void SetState(uint64_t within, PageState state) {
    const int shift = static_cast<int>(within % 4 * 2);
    states[within / 4] = static_cast<uint8_t>((states[within / 4] & ~(3 << shift)) |
                                              (static_cast<int>(state) << shift));
  }
  // The states of 32 pages from byte `at` of the states, which is 8 or more before their end.
  uint64_t WordOf(size_t at) const {
    uint64_t word;
    std::memcpy(&word, &states[at], sizeof(word));
    return word;
  }
  bool is_hole() const;    // all bytes zero, as a block that was never written reads
  bool is_intact() const;  // checksum, reserved and no unknown state
  void Seal();             // sets the checksum
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};
static_assert(sizeof(PageMapBlock) == 4096);
static_assert(PageMapBlock::kStateBytes % PageMapBlock::kWordBytes == 0);

}  // namespace space
