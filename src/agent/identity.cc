#include "agent/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "agent/file_tree.h"

namespace space::agent {
namespace {

constexpr std::array<const char*, 3> kSeeds{"/var/lib/systemd/random-seed",
                                            "/var/lib/urandom/random-seed", "/var/lib/random-seed"};

Result<void> Remove(const std::string& path) {
  if (unlink(path.c_str()) < 0 && errno != ENOENT && errno != ENOTDIR && errno != EROFS) {
    return FailErrno("remove", path);
  }
  return {};
}

// None when it cannot be listed.
std::vector<std::string> NamesIn(const std::string& folder) {
  return SortedNames(folder).value_or(std::vector<std::string>());
}

// nullopt-like: an invalid descriptor when `path` is no regular file.
UniqueFd OpenRegular(const std::string& path, int flags, unsigned mode) {
  UniqueFd file(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode));
  struct stat info {};
  if (file.valid() && (fstat(file.get(), &info) < 0 || !S_ISREG(info.st_mode))) {
    file = UniqueFd();
    errno = ELOOP;
  }
  return file;
}

Result<void> Fill(int file, std::string_view text, const std::string& path) {
  struct stat info {};
  if (fstat(file, &info) < 0 ||
      pwrite(file, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return FailErrno("write", path);
  }
  // Cutting to nothing first would make ext4 write the file out at once.
  if (info.st_size > static_cast<off_t>(text.size()) &&
      ftruncate(file, static_cast<off_t>(text.size())) < 0) {
    return FailErrno("cut", path);
  }
  return {};
}

}  // namespace

Result<void> OverwriteFile(const std::string& path, std::string_view text, unsigned mode) {
  UniqueFd file = OpenRegular(path, O_WRONLY | O_CREAT, mode);
  if (!file.valid() && errno != ENOENT && errno != EROFS) {
    if (unlink(path.c_str()) < 0) {
      return FailErrno("replace", path);
    }
    file = OpenRegular(path, O_WRONLY | O_CREAT | O_EXCL, mode);
  }
  if (!file.valid()) {
    return FailErrno("open", path);
  }
  return Fill(file.get(), text, path);
}

Result<void> WriteMachineId(const std::string& root, std::string_view id) {
  const std::string text = std::string(id) + "\n";
  mkdir((root + "/etc").c_str(), 0755);
  auto written = OverwriteFile(root + "/etc/machine-id", text, 0444);
  if (!written && written.error().system_errno() != EROFS) {
    return written;
  }
  const std::string bus = root + "/var/lib/dbus/machine-id";  // usually a link to the other one
  struct stat info {};
  if (lstat(bus.c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
    written = OverwriteFile(bus, text, 0444);
    if (!written && written.error().system_errno() != EROFS) {
      return written;
    }
  }
  return {};
}

Result<void> RemoveSeeds(const std::string& root) {
  for (const char* seed : kSeeds) {
    SPACE_TRY_VOID(Remove(root + seed), "seeds");
  }
  return {};
}

Result<void> RemoveIdentity(const std::string& root) {
  SPACE_TRY_VOID(RemoveSeeds(root), "clean up");
  const std::string ssh = root + "/etc/ssh/";
  for (const std::string& name : NamesIn(ssh)) {
    if (name.starts_with("ssh_host_")) {
      SPACE_TRY_VOID(Remove(ssh + name), "host keys");
    }
  }
  std::vector<std::string> homes{root + "/root"};
  for (const std::string& name : NamesIn(root + "/home")) {
    homes.push_back(root + "/home/" + name);
  }
  for (const std::string& home : homes) {
    SPACE_TRY_VOID(Remove(home + "/.bash_history"), "histories");
  }
  SPACE_TRY_VOID(Remove(root + "/var/lib/dbus/machine-id"), "machine id");
  const auto emptied = OverwriteFile(root + "/etc/machine-id", "", 0444);
  if (!emptied && emptied.error().system_errno() != EROFS &&
      emptied.error().code() != ErrorCode::kNotFound) {
    return emptied;
  }
  return {};
}

Result<Generation> Generation::Create(const std::string& root) {
  const std::string folder = root + "/run/space";
  mkdir((root + "/run").c_str(), 0755);
  if (mkdir(folder.c_str(), 0755) < 0 && errno != EEXIST) {
    return FailErrno("make", folder);
  }
  UniqueFd file = OpenRegular(folder + "/generation", O_RDWR | O_CREAT, 0444);
  if (!file.valid() || ftruncate(file.get(), kBytes) < 0) {
    return FailErrno("make", folder + "/generation");
  }
  return Generation(std::move(file));
}

Result<void> Generation::Advance(std::span<const std::byte, 16> id) {
  // The id first: whoever sees the new count sees the new id.
  SPACE_TRY_VOID(PwriteFull(file_.get(), id, 8), "write the generation");
  ++restores_;
  std::array<std::byte, 8> count;
  std::memcpy(count.data(), &restores_, count.size());
  return PwriteFull(file_.get(), count, 0);
}

}  // namespace space::agent
