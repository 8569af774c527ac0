// A memory mapping with one owner. Unmapped on destruction. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace space {

class [[nodiscard]] Mapping {
 public:
  Mapping() = default;
  // As mmap(2) without a fixed address. `fd` -1 for anonymous memory; it may be closed afterwards.
  static Result<Mapping> Create(int fd, size_t size_bytes, int protection, int flags,
                                uint64_t offset = 0);
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::span<std::byte> bytes() const { return bytes_; }
  size_t size_bytes() const { return bytes_.size(); }

 private:
  explicit Mapping(std::span<std::byte> bytes) : bytes_(bytes) {}
  void Unmap() noexcept;
  std::span<std::byte> bytes_;
};

}  // namespace space
