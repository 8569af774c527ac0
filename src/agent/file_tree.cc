#include "agent/file_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "agent/entry.h"
#include "agent/paths.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;

Result<void> ListBelow(const std::string& folder, uint32_t depth, const UserDatabase& users,
                       rpc::filesystem::ListDirResponse& into) {
  auto names = SortedNames(folder);
  if (!names) {
    return Fail(std::move(names).error());
  }
  for (const std::string& name : *names) {
    if (into.entries_size() >= kMaxListed) {
      return Fail(ErrorCode::kExhausted, "more than 200000 entries: list with a smaller depth");
    }
    const std::string path = folder == "/" ? "/" + name : JoinPath(folder, name);
    auto* entry = into.add_entries();
    if (!FillEntry(path, users, *entry)) {
      into.mutable_entries()->RemoveLast();  // deleted meanwhile
      continue;
    }
    const bool is_folder = entry->type() == rpc::filesystem::FILE_TYPE_DIRECTORY;
    if (depth > 1 && is_folder && !entry->has_symlink_target()) {
      // A folder below that cannot be listed does not spoil the rest.
      const auto listed = ListBelow(path, depth - 1, users, into);
      if (!listed && listed.error().code() == ErrorCode::kExhausted) {
        return listed;
      }
    }
  }
  return {};
}

Result<void> CopyAcross(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::copy(from, to,
           fs::copy_options::recursive | fs::copy_options::copy_symlinks |
               fs::copy_options::overwrite_existing,
           error);
  if (error) {
    return Fail(ErrorCode::kIo, "copy '" + from + "' to '" + to + "': " + error.message());
  }
  struct stat info {};
  if (lstat(from.c_str(), &info) == 0) {
    [[maybe_unused]] const int kept = lchown(to.c_str(), info.st_uid, info.st_gid);
  }
  return RemoveEntry(from);
}

}  // namespace

Result<std::vector<std::string>> SortedNames(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  if (!listing) {
    return FailErrno("list", folder);
  }
  std::vector<std::string> names;
  while (const dirent* item = readdir(listing.get())) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") {
      names.emplace_back(name);
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<void> MakeFolders(const std::string& path, const User& user) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) {
      return {};
    }
    return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is not a directory");
  }
  if (errno == ENOTDIR) {
    return Fail(ErrorCode::kInvalidArgument, "a parent of '" + path + "' is not a directory");
  }
  if (path == "/") {
    return {};
  }
  auto parents = MakeFolders(std::string(ParentPath(path)), user);
  if (!parents) {
    return parents;
  }
  if (mkdir(path.c_str(), 0755) < 0) {
    return errno == EEXIST ? Result<void>() : FailErrno("make directory", path);
  }
  if (lchown(path.c_str(), user.uid, user.gid) < 0) {
    return FailErrno("give to user", path);
  }
  return {};
}

Result<void> MakeNewFolder(const std::string& path, const User& user) {
  struct stat info {};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kConflict, "directory already exists: " + path);
  }
  return MakeFolders(path, user);
}

Result<void> MoveEntry(const std::string& from, const std::string& to, const User& user) {
  struct stat info {};
  if (lstat(from.c_str(), &info) < 0) {
    return Fail(ErrorCode::kNotFound, "source path '" + from + "' does not exist");
  }
  auto parents = MakeFolders(std::string(ParentPath(to)), user);
  if (!parents) {
    return parents;
  }
  if (rename(from.c_str(), to.c_str()) == 0) {
    return {};
  }
  if (errno == EXDEV) {
    return CopyAcross(from, to);
  }
  if (errno == EISDIR || errno == ENOTDIR || errno == EINVAL || errno == ENOTEMPTY) {
    const std::string why = strerrordesc_np(errno);
    return Fail(ErrorCode::kInvalidArgument, "move '" + from + "' to '" + to + "': " + why);
  }
  return FailErrno("move '" + from + "' to", to);
}

Result<void> RemoveEntry(const std::string& path) {
  if (path == "/") {
    return Fail(ErrorCode::kInvalidArgument, "'/' cannot be removed");
  }
  std::error_code error;
  fs::remove_all(path, error);
  if (error && error != std::errc::not_a_directory) {
    return Fail(ErrorCode::kIo, "remove '" + path + "': " + error.message());
  }
  return {};
}

Result<void> ListTree(const std::string& path, uint32_t depth, const UserDatabase& users,
                      rpc::filesystem::ListDirResponse& into) {
  struct stat info {};
  if (stat(path.c_str(), &info) < 0) {
    return Fail(ErrorCode::kNotFound, "path '" + path + "' does not exist");
  }
  if (!S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is not a directory");
  }
  return ListBelow(path, std::clamp<uint32_t>(depth, 1, 1000), users, into);
}

}  // namespace space::agent
