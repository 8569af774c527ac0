#include "node/sandbox_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>

namespace space {

SandboxFiles::SandboxFiles(const std::string& data_dir, const std::string& sandbox_id)
    : folder_(Root(data_dir) + "/" + sandbox_id) {}

Result<void> SandboxFiles::Create() const {
  if (::mkdir(folder_.c_str(), 0700) != 0) {
    return FailErrno("make folder", folder_);
  }
  for (const std::string& path : {serial_log(), vmm_log(), exit_record()}) {
    SPACE_TRY(const UniqueFd file, CreateExclusive(path), "make sandbox's files");
  }
  return {};
}

Result<void> SandboxFiles::Renew() const {
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) {
    return FailErrno("make folder", folder_);
  }
  for (const std::string& path : {serial_log(), vmm_log(), exit_record()}) {
    const int cut = path == exit_record() ? O_TRUNC : 0;
    const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | cut, 0600));
    if (!file.valid()) {
      return FailErrno("make", path);
    }
  }
  return {};
}

Result<void> SandboxFiles::WriteProcess(int64_t pid, int64_t start_ticks) const {
  const UniqueFd file(::open(process().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FailErrno("make", process());
  }
  return WriteFull(file.get(), std::to_string(pid) + " " + std::to_string(start_ticks) + "\n");
}

Result<std::pair<int64_t, int64_t>> SandboxFiles::ReadProcess() const {
  SPACE_TRY(const std::string text, ReadFile(process()), "find process");
  std::pair<int64_t, int64_t> found;
  const char* end = text.data() + text.size();
  const auto pid = std::from_chars(text.data(), end, found.first);
  if (pid.ec != std::errc() || pid.ptr == end ||
      std::from_chars(pid.ptr + 1, end, found.second).ec != std::errc()) {
    return Fail(ErrorCode::kNotFound, "no process is written in", process());
  }
  return found;
}

Result<void> SandboxFiles::Remove() const {
  std::error_code error;
  std::filesystem::remove_all(folder_, error);
  if (error) {
    return Fail(ErrorCode::kIo, "remove " + folder_ + ": " + error.message());
  }
  return {};
}

Result<std::vector<std::string>> SandboxFiles::Existing(const std::string& data_dir) {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(Root(data_dir), error)) {
    ids.push_back(entry.path().filename().string());
  }
  if (error) {
    return Fail(ErrorCode::kIo, "list " + Root(data_dir) + ": " + error.message());
  }
  return ids;
}

Result<UniqueFd> OpenAppend(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC));
  if (!fd.valid()) {
    return FailErrno("open", path);
  }
  return fd;
}

std::string ReadTail(const std::string& path, size_t limit) {
  const auto fd = OpenReadOnly(path);
  if (!fd) {
    return {};
  }
  const auto size = FileSize(fd->get());
  if (!size) {
    return {};
  }
  const uint64_t start = *size > limit ? *size - limit : 0;
  std::string text(static_cast<size_t>(*size - start), '\0');
  if (!PreadFull(fd->get(), std::as_writable_bytes(std::span(text)), start)) {
    return {};  // trimmed under our hands
  }
  const size_t line_end = text.find('\n');
  return start != 0 && line_end != std::string::npos ? text.substr(line_end + 1) : text;
}

void TrimLog(const std::string& path, size_t limit) {
  const auto fd = OpenAppend(path);
  if (!fd) {
    return;
  }
  const auto size = FileSize(fd->get());
  if (!size || *size <= limit) {
    return;
  }
  const std::string tail = ReadTail(path, limit / 2);
  // The writer appends, so it goes on after what we write back; what it wrote in between is lost.
  if (::ftruncate(fd->get(), 0) == 0) {
    [[maybe_unused]] const auto written = WriteFull(fd->get(), tail);
  }
}

}  // namespace space
