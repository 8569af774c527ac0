#include "base/mapping.h"

#include <sys/mman.h>

#include <utility>

namespace space {

Result<Mapping> Mapping::Create(int fd, size_t size_bytes, int protection, int flags,
                                uint64_t offset) {
  void* at = ::mmap(nullptr, size_bytes, protection, flags, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) {
    return FailErrno("map memory");
  }
  return Mapping(std::span(static_cast<std::byte*>(at), size_bytes));
}

Mapping::Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    bytes_ = std::exchange(other.bytes_, {});
  }
  return *this;
}

Mapping::~Mapping() { Unmap(); }

void Mapping::Unmap() noexcept {
  if (!bytes_.empty()) {
    ::munmap(bytes_.data(), bytes_.size());
  }
}

}  // namespace space
