// Descriptors: sole ownership, opening, whole reads and writes. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace space {

// Sole owner of an open descriptor. -1 is empty; 0 is a real descriptor, hence no conversion to
// bool.
class [[nodiscard]] UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));  // closes the old one now; safe on self-move
    return *this;
  }
  ~UniqueFd() { Reset(-1); }

  int get() const noexcept { return fd_; }
  bool valid() const noexcept { return fd_ != -1; }
  // Gives the descriptor up; the caller closes it.
  [[nodiscard]] int Release() noexcept { return std::exchange(fd_, -1); }
  Result<UniqueFd> Duplicate() const;

 private:
  void Reset(int fd) noexcept;
  int fd_ = -1;
};

// All open CLOEXEC. Errors name the path.
Result<UniqueFd> OpenReadOnly(const std::string& path);
Result<UniqueFd> OpenReadWrite(const std::string& path);
// New file, mode 0600; kConflict when it exists.
Result<UniqueFd> CreateExclusive(const std::string& path);
Result<UniqueFd> CreateMemfd(const std::string& name);
Result<uint64_t> FileSize(int fd);

// Exactly the asked length, retrying EINTR and short transfers. Early end of file is kIo.
Result<void> PreadFull(int fd, std::span<std::byte> into, uint64_t offset);
Result<void> PwriteFull(int fd, std::span<const std::byte> from, uint64_t offset);
Result<void> WriteFull(int fd, std::string_view text);

// Whole file as text, at most `limit` bytes, else kExhausted.
Result<std::string> ReadFile(const std::string& path, size_t limit = 1 << 20);
// Writes a temporary beside it, syncs, renames: readers see the old or the new text, never half.
Result<void> WriteFileAtomically(const std::string& path, std::string_view text,
                                 unsigned mode = 0600);
Result<void> MakeDirectories(const std::string& path, unsigned mode);

}  // namespace space
