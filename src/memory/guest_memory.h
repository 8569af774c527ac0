// The guest's physical memory. Addresses and lengths come from the guest: every access is checked,
// and nothing here keeps a host pointer beyond a call except spans handed to validated chains.
// Threads: any; guest bytes may change at any moment under us (copy, then check, then use).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/mapping.h"
#include "base/result.h"
#include "memory/memory_map.h"

namespace space {

// Guest-physical address. Never mixed with host pointers or lengths.
struct GuestAddress {
  uint64_t value = 0;
  friend bool operator==(GuestAddress, GuestAddress) = default;
  friend auto operator<=>(GuestAddress, GuestAddress) = default;
  GuestAddress operator+(uint64_t offset) const { return {value + offset}; }
};

class GuestMemory {
 public:
  // RAM below this address, the rest from 4 GiB: between lie MMIO, IOAPIC and local APIC.
  static constexpr uint64_t kLowLimit = 0xc0000000;
  static constexpr uint64_t kHighStart = 0x100000000;

  struct Region {
    GuestAddress start;
    std::span<std::byte> bytes;
  };

  // Anonymous zero memory of `size_bytes` (multiple of 4096), never mlocked.
  static Result<GuestMemory> Create(uint64_t size_bytes);
  // The memory of a snapshot: as Create, with each extent of `map` mapped private over it from its
  // layer (sparse_layer.h: page n at (n + 1) * 4096). A descriptor open for reading is enough and
  // may be closed afterwards. Layers must not shrink while the memory lives.
  //   errors: kInvalidArgument for a layer that ends before its extents, naming it by its place
  static Result<GuestMemory> Map(uint64_t size_bytes, std::span<const int> layer_fds,
                                 const MemoryMap& map);
  GuestMemory(GuestMemory&&) noexcept = default;
  GuestMemory& operator=(GuestMemory&&) noexcept = default;
  GuestMemory(const GuestMemory&) = delete;
  GuestMemory& operator=(const GuestMemory&) = delete;
  ~GuestMemory() = default;

  uint64_t size_bytes() const { return size_bytes_; }
  const std::vector<Region>& regions() const { return regions_; }
  // All of it in one piece, without the hole below 4 GiB: page n of a MemoryMap is at n * 4096.
  std::span<std::byte> flat() const { return flat_; }

  // `length` bytes at `at`, inside one region. kGuestFault else (also on overflow and length 0).
  Result<std::span<std::byte>> Slice(GuestAddress at, uint64_t length) const;

  template <class T>
  requires std::is_trivially_copyable_v<T> Result<T> Read(GuestAddress at)
  const {
    SPACE_TRY(const std::span<std::byte> bytes, Slice(at, sizeof(T)), "read guest memory");
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  template <class T>
  requires std::is_trivially_copyable_v<T> Result<void> Write(GuestAddress at, const T& value)
  const {
    SPACE_TRY(const std::span<std::byte> bytes, Slice(at, sizeof(T)), "write guest memory");
    std::memcpy(bytes.data(), &value, sizeof(T));
    return {};
  }
  Result<void> WriteBytes(GuestAddress at, std::span<const std::byte> from) const;

 private:
  GuestMemory() = default;
  Mapping mapping_;
  uint64_t size_bytes_ = 0;
  std::span<std::byte> flat_;
  std::vector<Region> regions_;
};

}  // namespace space
