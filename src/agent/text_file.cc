#include "agent/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace space::agent {

Result<std::string> ReadRegularFile(const std::string& path, size_t limit) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) < 0) {
    return FailErrno("open", path);
  }
  if (!S_ISREG(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "not a regular file", path);
  }
  std::string text;
  char chunk[16 * 1024];
  while (true) {
    const ssize_t bytes = read(fd.get(), chunk, sizeof(chunk));
    if (bytes < 0 && errno == EINTR) {
      continue;
    }
    if (bytes < 0) {
      return FailErrno("read", path);
    }
    if (bytes == 0) {
      return text;
    }
    if (text.size() + static_cast<size_t>(bytes) > limit) {
      return Fail(ErrorCode::kExhausted, "file is too large", path);
    }
    text.append(chunk, static_cast<size_t>(bytes));
  }
}

}  // namespace space::agent
