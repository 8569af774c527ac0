#include "agent/pid1/mounts.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/fd.h"
#include "base/log.h"

namespace space::agent::pid1 {
namespace {

void LogIfFailed(const Result<void>& result, std::string_view what) {
  if (!result) {
    log::Warn("mount_failed", {{"what", what}, {"error", result.error().message()}});
  }
}

// Deletes everything below an open directory without leaving its file system: by then the moved
// mounts and the new root hang there no more, but a bug here must not delete the user's disk.
void DeleteTree(UniqueFd folder, dev_t device) {
  const int fd = folder.get();
  DIR* listing = fdopendir(fd);
  if (listing == nullptr) {
    return;
  }
  (void)folder.Release();
  while (const dirent* item = readdir(listing)) {
    const char* name = item->d_name;
    struct stat info {};
    if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0 ||
        fstatat(fd, name, &info, AT_SYMLINK_NOFOLLOW) < 0 || info.st_dev != device) {
      continue;
    }
    if (S_ISDIR(info.st_mode)) {
      UniqueFd child(openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (child.valid()) {
        DeleteTree(std::move(child), device);
      }
      unlinkat(fd, name, AT_REMOVEDIR);
    } else {
      unlinkat(fd, name, 0);
    }
  }
  closedir(listing);
}

void DeleteInitramfs(UniqueFd old_root) {
  struct statfs kind {};
  struct stat info {};
  if (!old_root.valid() || fstatfs(old_root.get(), &kind) < 0 || fstat(old_root.get(), &info) < 0) {
    return;
  }
  if (kind.f_type != RAMFS_MAGIC && kind.f_type != TMPFS_MAGIC) {
    return;
  }
  DeleteTree(std::move(old_root), info.st_dev);
}

// Nodes whose module is loaded by their first opening; udev and kmod are not needed for it.
void MakeNode(const char* path, mode_t mode, unsigned major, unsigned minor) {
  if (mknod(path, S_IFCHR | mode, makedev(major, minor)) < 0 && errno != EEXIST) {
    return;
  }
  chmod(path, mode);
}

void Link(const char* target, const char* path) {
  [[maybe_unused]] const int ignored = symlink(target, path);  // there already, on a second boot
}

void MakeDeviceNodes() {
  Link("/proc/self/fd", "/dev/fd");
  Link("/proc/self/fd/0", "/dev/stdin");
  Link("/proc/self/fd/1", "/dev/stdout");
  Link("/proc/self/fd/2", "/dev/stderr");
  MakeNode("/dev/fuse", 0666, 10, 229);
  mkdir("/dev/net", 0755);
  MakeNode("/dev/net/tun", 0666, 10, 200);
}

}  // namespace

Result<void> Mount(const std::string& source, const std::string& target, const char* type,
                   unsigned long flags, const char* options) {
  mkdir(target.c_str(), 0755);
  if (mount(source.c_str(), target.c_str(), type, flags, options) < 0) {
    return FailErrno("mount " + source + " on", target);
  }
  return {};
}

Result<void> MountEarly() {
  const auto mounted = Mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755");
  if (!mounted && mounted.error().system_errno() != EBUSY) {  // EBUSY: the kernel did it
    return mounted;
  }
  SPACE_TRY_VOID(Mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC), "mount proc");
  return Mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC);
}

Result<void> SwitchRoot(const std::string& root) {
  UniqueFd old_root(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const char* moved : {"/dev", "/proc", "/sys"}) {
    const std::string target = root + moved;
    mkdir(target.c_str(), 0755);
    if (mount(moved, target.c_str(), nullptr, MS_MOVE, nullptr) < 0) {
      return FailErrno("move mount", moved);
    }
  }
  if (chdir(root.c_str()) < 0 || mount(".", "/", nullptr, MS_MOVE, nullptr) < 0 ||
      chroot(".") < 0 || chdir("/") < 0) {
    return FailErrno("enter the new root");
  }
  DeleteInitramfs(std::move(old_root));
  return {};
}

void MountLate() {
  constexpr unsigned long kSafe = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  // ptmxmode: the node inside devpts is used by programs in containers.
  LogIfFailed(
      Mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"),
      "devpts");
  LogIfFailed(Mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), "shm");
  LogIfFailed(Mount("mqueue", "/dev/mqueue", "mqueue", kSafe), "mqueue");
  LogIfFailed(Mount("tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755,size=20%"), "run");
  LogIfFailed(Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", kSafe, "nsdelegate"), "cgroup2");
  mkdir("/run/lock", 01777);
  chmod("/run/lock", 01777);
  if (mkdir("/tmp", 01777) == 0) {
    chmod("/tmp", 01777);  // mkdir's mode is cut by the umask
  }
  MakeDeviceNodes();
}

}  // namespace space::agent::pid1
