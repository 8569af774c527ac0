#include "base/fd.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace space {
namespace {

Result<UniqueFd> Open(const std::string& path, int flags, unsigned mode = 0) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd.valid()) {
    return FailErrno("open", path);
  }
  return fd;
}

}  // namespace

void UniqueFd::Reset(int fd) noexcept {
  if (fd_ != -1) {
    ::close(fd_);
  }
  fd_ = fd;
}

Result<UniqueFd> UniqueFd::Duplicate() const {
  UniqueFd copy(::fcntl(fd_, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) {
    return FailErrno("duplicate descriptor");
  }
  return copy;
}

Result<UniqueFd> OpenReadOnly(const std::string& path) { return Open(path, O_RDONLY); }
Result<UniqueFd> OpenReadWrite(const std::string& path) { return Open(path, O_RDWR); }
Result<UniqueFd> CreateExclusive(const std::string& path) {
  return Open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
}

Result<UniqueFd> CreateMemfd(const std::string& name) {
  UniqueFd fd(::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return FailErrno("create memory file", name);
  }
  return fd;
}

Result<uint64_t> FileSize(int fd) {
  // lseek answers for block devices too, where st_size is 0.
  const off_t end = ::lseek(fd, 0, SEEK_END);
  if (end < 0) {
    return FailErrno("read file size");
  }
  return static_cast<uint64_t>(end);
}

Result<void> PreadFull(int fd, std::span<std::byte> into, uint64_t offset) {
  while (!into.empty()) {
    const ssize_t got = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read");
    }
    if (got == 0) {
      return Fail(ErrorCode::kIo, "read: file ends early");
    }
    into = into.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> PwriteFull(int fd, std::span<const std::byte> from, uint64_t offset) {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return FailErrno("write");
    }
    from = from.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return {};
}

Result<void> WriteFull(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(fd, text.data(), text.size());
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return FailErrno("write");
    }
    text.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  SPACE_TRY(const UniqueFd fd, OpenReadOnly(path), "read file");
  std::string text;
  std::array<char, 16384> chunk;
  for (;;) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read", path);
    }
    if (got == 0) {
      return text;
    }
    if (text.size() + static_cast<size_t>(got) > limit) {
      return Fail(ErrorCode::kExhausted, "file is larger than allowed", path);
    }
    text.append(chunk.data(), static_cast<size_t>(got));
  }
}

Result<void> WriteFileAtomically(const std::string& path, std::string_view text, unsigned mode) {
  const std::string temporary = path + ".new";
  {
    SPACE_TRY(const UniqueFd fd, Open(temporary, O_WRONLY | O_CREAT | O_TRUNC, mode), "write file");
    if (::fchmod(fd.get(), mode) != 0) {
      return FailErrno("set mode of", temporary);
    }
    SPACE_TRY_VOID(WriteFull(fd.get(), text), temporary);
    if (::fsync(fd.get()) != 0) {
      return FailErrno("sync", temporary);
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return FailErrno("rename to", path);
  }
  return {};
}

Result<void> MakeDirectories(const std::string& path, unsigned mode) {
  if (::mkdir(path.c_str(), mode) == 0) {
    return {};
  }
  if (errno == EEXIST) {
    struct stat info = {};
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      return {};
    }
    return Fail(ErrorCode::kConflict, "not a directory", path);
  }
  if (errno != ENOENT) {
    return FailErrno("make directory", path);
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (parent.empty() || parent == path) {
    return FailErrno("make directory", path);
  }
  SPACE_TRY_VOID(MakeDirectories(parent, mode), "make directory");
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) {
    return FailErrno("make directory", path);
  }
  return {};
}

}  // namespace space
