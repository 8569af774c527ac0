#include "machine/disks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <set>

#include "base/fd.h"
#include "base/units.h"
#include "machine/tool.h"

namespace space::machine {
namespace {

using std::chrono::seconds;

// debugfs reads its commands as words in quotes; a quote or line end inside cannot be said.
bool IsPlain(const std::string& path) { return path.find_first_of("\"\n\\") == std::string::npos; }

struct Inventory {
  std::string stamp;
  uint64_t used_bytes = 0;
};

Result<Inventory> TakeInventory(const std::vector<DiskFile>& files) {
  Inventory inventory;
  inventory.stamp = "disk format 1\n";
  for (const DiskFile& file : files) {
    struct stat info = {};
    if (::stat(file.source.c_str(), &info) != 0) {
      return FailErrno("look at", file.source);
    }
    if (!IsPlain(file.source) || !IsPlain(file.target)) {
      return Fail(ErrorCode::kInvalidArgument, "path holds a quote or backslash", file.source);
    }
    char line[160];
    std::snprintf(line, sizeof(line), "%llu %lld.%09ld %o ",
                  static_cast<unsigned long long>(info.st_size),
                  static_cast<long long>(info.st_mtim.tv_sec), info.st_mtim.tv_nsec, file.mode);
    inventory.stamp += line + file.target + " " + file.source + "\n";
    inventory.used_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  return inventory;
}

std::string FillCommands(const std::vector<DiskFile>& files) {
  std::set<std::string> folders;
  for (const DiskFile& file : files) {
    for (size_t slash = file.target.find('/'); slash != std::string::npos;
         slash = file.target.find('/', slash + 1)) {
      folders.insert(file.target.substr(0, slash));
    }
  }
  std::string commands;
  for (const std::string& folder : folders) {  // sorted: parents first
    commands += "mkdir \"" + folder + "\"\n";
  }
  for (const DiskFile& file : files) {
    char mode[16];
    std::snprintf(mode, sizeof(mode), "0%o", S_IFREG | file.mode);
    commands += "write \"" + file.source + "\" \"" + file.target + "\"\n";
    commands += "sif \"" + file.target + "\" mode " + mode + "\n";
    commands += "sif \"" + file.target + "\" uid 0\nsif \"" + file.target + "\" gid 0\n";
  }
  return commands;
}

// debugfs ends with 0 whatever happened, and echoes commands and "Allocated inode" on its way: all
// other lines are complaints.
std::string Complaints(const std::string& output) {
  std::string found;
  for (size_t from = 0; from < output.size();) {
    const size_t end = std::min(output.find('\n', from), output.size());
    const std::string line = output.substr(from, end - from);
    from = end + 1;
    if (!line.empty() && line.rfind("debugfs", 0) != 0 && line.rfind("Allocated inode", 0) != 0) {
      found += (found.empty() ? "" : "; ") + line;
    }
  }
  return found;
}

Result<void> Format(const std::string& path, const std::string& label, uint64_t size_bytes) {
  SPACE_TRY(const std::string mke2fs, FindProgram("mke2fs", "e2fsprogs"), "make disk");
  (void)::unlink(path.c_str());
  SPACE_TRY_VOID(MakeSparseFile(path, size_bytes), "make disk");
  SPACE_TRY(const ToolResult made,
            RunTool(mke2fs,
                    {"-q", "-F", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-E",
                     "nodiscard,lazy_itable_init=1", "-L", label, path},
                    "", seconds(120)),
            "make disk");
  if (made.status.by_signal || made.status.value != 0) {
    return Fail(ErrorCode::kInternal, "mke2fs failed: " + made.output);
  }
  return {};
}

Result<void> Fill(const std::string& path, const std::vector<DiskFile>& files) {
  SPACE_TRY(const std::string debugfs, FindProgram("debugfs", "e2fsprogs"), "fill disk");
  SPACE_TRY(const ToolResult filled,
            RunTool(debugfs, {"-w", "-f", "-", path}, FillCommands(files), seconds(900)),
            "fill disk");
  if (const std::string wrong = Complaints(filled.output); !wrong.empty()) {
    return Fail(ErrorCode::kInternal, "debugfs could not fill " + path + ": " + wrong);
  }
  return {};
}

}  // namespace

Result<void> MakeSparseFile(const std::string& path, uint64_t size_bytes) {
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid()) {
    return FailErrno("open", path);
  }
  SPACE_TRY(const uint64_t present, FileSize(file.get()), path);
  if (present < size_bytes && ::ftruncate(file.get(), static_cast<off_t>(size_bytes)) != 0) {
    return FailErrno("grow", path);
  }
  return {};
}

Result<void> MakeDisk(const std::string& image, const std::string& label,
                      const std::vector<DiskFile>& files, const Progress& progress) {
  SPACE_TRY(const Inventory inventory, TakeInventory(files), "make disk " + label);
  const std::string stamp_path = image + ".stamp";
  const auto stamp = ReadFile(stamp_path);
  if (stamp && *stamp == inventory.stamp && ::access(image.c_str(), R_OK) == 0) {
    return {};
  }
  progress("copying " + FormatSize(inventory.used_bytes) + " to the machine's disk " + label);
  const std::string fresh = image + ".new";
  const uint64_t size_bytes = inventory.used_bytes + inventory.used_bytes / 8 + MiB(64);
  SPACE_TRY_VOID(Format(fresh, label, (size_bytes + MiB(1) - 1) / MiB(1) * MiB(1)), label);
  SPACE_TRY_VOID(Fill(fresh, files), label);
  (void)::unlink(stamp_path.c_str());
  if (::rename(fresh.c_str(), image.c_str()) != 0) {
    return FailErrno("rename", fresh);
  }
  return WriteFileAtomically(stamp_path, inventory.stamp);
}

}  // namespace space::machine
