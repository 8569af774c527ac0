#include "machine/console_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>

#include "base/fd.h"

namespace space::machine {
namespace {

constexpr size_t kMaxLogBytes = 64 << 20;

Result<UniqueFd> OpenLog(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FailErrno("open log", path);
  }
  return file;
}

}  // namespace

Result<void> CopyToLog(int input_fd, const std::string& path, size_t limit_bytes) {
  SPACE_TRY(UniqueFd file, OpenLog(path), "keep console log");
  size_t written = 0;
  std::array<char, 4096> chunk;
  while (true) {
    const ssize_t got = ::read(input_fd, chunk.data(), chunk.size());
    if (got == 0) {
      return {};
    }
    if (got < 0) {
      if (errno == EINTR) {
        continue;
      }
      return FailErrno("read console");
    }
    if (written >= limit_bytes) {
      (void)::rename(path.c_str(), (path + ".1").c_str());
      SPACE_TRY(file, OpenLog(path), "keep console log");
      written = 0;
    }
    // A full disk must not stop the reading: QEMU would stall on its serial line.
    (void)WriteFull(file.get(), std::string_view(chunk.data(), static_cast<size_t>(got)));
    written += static_cast<size_t>(got);
  }
}

std::string LogTail(const std::string& path, size_t lines) {
  const auto text = ReadFile(path, kMaxLogBytes);
  if (!text) {
    return "";
  }
  std::string clean;
  bool in_escape = false;
  for (const char c : *text) {
    if (in_escape) {
      in_escape = (c >= '0' && c <= '?') || c == '[';  // ECMA-48, 5.4: a CSI ends at @ to ~
      continue;
    }
    if (c == '\x1b') {
      in_escape = true;
    } else if (c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= ' ') {
      clean += c;
    }
  }
  while (!clean.empty() && clean.back() == '\n') {
    clean.pop_back();
  }
  size_t from = clean.size();
  for (size_t found = 0; from > 0; --from) {
    if (clean[from - 1] == '\n' && ++found == lines) {
      break;
    }
  }
  return clean.substr(from);
}

}  // namespace space::machine
