#include "agent/sync_disks.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace space::agent {
namespace {

constexpr size_t kMaxMountsBytes = 4 << 20;

struct MountPoint {
  std::string device;  // "254:0"
  std::string path;
};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = line.find(' ');
    words.push_back(line.substr(0, end));
    line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  }
  return words;
}

// proc(5), mountinfo: id parent major:minor root mount-point options... - type source options.
// Escaped names ("\040") do not open, so such mounts wait for the next sync of the kernel's own.
void AddIfDisk(std::string_view line, std::vector<MountPoint>& mounts) {
  const auto words = Words(line);
  size_t dash = 6;
  while (dash < words.size() && words[dash] != "-") {
    ++dash;
  }
  if (dash + 2 >= words.size() || words[dash + 1].starts_with("fuse") ||
      !words[dash + 2].starts_with("/dev/")) {
    return;
  }
  for (MountPoint& known : mounts) {
    if (known.device == words[2]) {
      return;
    }
  }
  mounts.push_back({.device = std::string(words[2]), .path = std::string(words[4])});
}

}  // namespace

Result<void> SyncDisks() {
  SPACE_TRY(const std::string table, ReadFile("/proc/self/mountinfo", kMaxMountsBytes), "sync");
  std::vector<MountPoint> mounts;
  std::string_view rest = table;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    AddIfDisk(rest.substr(0, end), mounts);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  for (auto mount = mounts.rbegin(); mount != mounts.rend(); ++mount) {
    const UniqueFd folder(open(mount->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.valid() && syncfs(folder.get()) < 0) {
      return FailErrno("sync", mount->path);
    }
  }
  return {};
}

}  // namespace space::agent
