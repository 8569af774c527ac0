#include "agent/pid1/disks.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>

#include "agent/pid1/mounts.h"
#include "base/fd.h"

namespace space::agent::pid1 {
namespace {

// fs/ext4/ext4.h: not in the kernel's exported headers.
constexpr unsigned long kExt4ResizeFs = _IOW('f', 16, uint64_t);
constexpr off_t kSuperblockOffset = 1024;
constexpr uint16_t kExt4Magic = 0xef53;

std::string Trimmed(std::string text) {
  text.erase(text.find_last_not_of("\n ") + 1);
  return text;
}

template <class Visit>
void ForEachDisk(Visit visit) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir("/sys/block"), closedir);
  if (!listing) {
    return;
  }
  while (const dirent* item = readdir(listing.get())) {
    if (item->d_name[0] != '.') {
      visit(std::string(item->d_name));
    }
  }
}

struct Ext4Size {
  uint64_t blocks;
  uint64_t block_bytes;
};

// docs: kernel, filesystems/ext4/super.rst: s_blocks_count_lo 0x4, s_log_block_size 0x18,
// s_magic 0x38, s_blocks_count_hi 0x150 (0 without the 64bit feature).
Result<std::optional<Ext4Size>> ReadExt4Size(int device) {
  unsigned char block[1024];
  if (pread(device, block, sizeof(block), kSuperblockOffset) != ssize_t{sizeof(block)}) {
    return FailErrno("read the superblock");
  }
  const auto field = [&block](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, block + at, sizeof(value));
    return value;
  };
  if ((field(0x38) & 0xffff) != kExt4Magic || field(0x18) > 6) {
    return std::nullopt;
  }
  return Ext4Size{.blocks = field(0x4) | uint64_t{field(0x150)} << 32,
                  .block_bytes = uint64_t{1024} << field(0x18)};
}

// Merged-usr: /lib is a link to usr/lib, relative or absolute, and mkdir follows it. Without a
// /lib, one is made.
void MakeModulesFolder(const std::string& folder) {
  mkdir("/lib", 0755);
  mkdir("/lib/modules", 0755);
  mkdir(folder.c_str(), 0755);
}

}  // namespace

std::optional<std::string> FindDisk(const std::string& serial) {
  std::optional<std::string> found;
  ForEachDisk([&](const std::string& name) {
    const auto text = ReadFile("/sys/block/" + name + "/serial", 256);
    if (text && Trimmed(*text) == serial) {
      found = "/dev/" + name;
    }
  });
  return found;
}

Result<std::string> WaitForDisk(const std::string& serial, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  do {
    auto found = FindDisk(serial);
    if (found && access(found->c_str(), F_OK) == 0) {
      return *std::move(found);
    }
    // There is no event to wait for without udev; probing is done by the time modules are loaded.
    const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&pause, nullptr);
  } while (std::chrono::steady_clock::now() < until);
  std::string there;
  ForEachDisk([&there](const std::string& name) { there += " " + name; });
  return Fail(ErrorCode::kNotFound,
              "no disk with serial '" + serial + "'; disks:" + (there.empty() ? " none" : there));
}

Result<void> MountRoot(const std::string& device, const std::string& target) {
  // noinit_itable: lazy initialisation would dirty the disk's top layer in every sandbox.
  auto mounted = Mount(device, target, "ext4", MS_NOATIME, "noinit_itable");
  if (!mounted &&
      (mounted.error().system_errno() == EROFS || mounted.error().system_errno() == EACCES)) {
    mounted = Mount(device, target, "ext4", MS_NOATIME | MS_RDONLY, "noload");
  }
  const Result<void> first = mounted;
  for (const char* type : {"xfs", "btrfs", "erofs", "squashfs"}) {
    if (mounted) {
      break;
    }
    mounted = Mount(device, target, type, MS_NOATIME);
    if (!mounted && mounted.error().system_errno() == EACCES) {
      mounted = Mount(device, target, type, MS_NOATIME | MS_RDONLY);
    }
  }
  return mounted ? mounted : first;
}

Result<void> MountModules(const std::string& device) {
  utsname kernel{};
  uname(&kernel);
  const std::string folder = std::string("/lib/modules/") + kernel.release;
  MakeModulesFolder(folder);
  return Mount(device, folder, "ext4", MS_RDONLY | MS_NOATIME, "noload");
}

Result<void> GrowRoot(const std::string& device) {
  SPACE_TRY(const UniqueFd disk, OpenReadOnly(device), "grow root");
  uint64_t disk_bytes = 0;
  if (ioctl(disk.get(), BLKGETSIZE64, &disk_bytes) < 0) {
    return FailErrno("size of", device);
  }
  SPACE_TRY(const auto size, ReadExt4Size(disk.get()), "grow root");
  if (!size) {
    return {};
  }
  const uint64_t wanted = disk_bytes / size->block_bytes;
  if (wanted <= size->blocks) {
    return {};
  }
  SPACE_TRY(const UniqueFd root, OpenReadOnly("/"), "grow root");
  if (ioctl(root.get(), kExt4ResizeFs, &wanted) < 0) {
    return FailErrno("grow the root file system");
  }
  return {};
}

}  // namespace space::agent::pid1
