#include "agent/folder_watch.h"

#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include "agent/entry.h"
#include "agent/file_tree.h"
#include "agent/paths.h"

namespace space::agent {
namespace {

namespace pb = rpc::filesystem;

constexpr uint32_t kMask = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM |
                           IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR |
                           IN_EXCL_UNLINK;
// File systems that others may change without this kernel's knowing: nfs, fuse, cifs, smb2, 9p,
// ceph, afs, coda, ncp (linux/magic.h and the file systems' own headers).
constexpr std::array<uint32_t, 9> kNetwork{0x6969,     0x65735546, 0xff534d42,
                                           0xfe534d42, 0x01021997, 0x00c36400,
                                           0x5346414f, 0x73757245, 0x564c};

bool IsOnNetwork(const std::string& path) {
  struct statfs info {};
  return statfs(path.c_str(), &info) == 0 &&
         std::find(kNetwork.begin(), kNetwork.end(), static_cast<uint32_t>(info.f_type)) !=
             kNetwork.end();
}

Result<void> CheckFolder(const std::string& path, bool may_be_network) {
  struct stat info {};
  if (stat(path.c_str(), &info) < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return Fail(ErrorCode::kNotFound, "path '" + path + "' does not exist");
    }
    return FailErrno("watch", path);
  }
  if (!S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is not a directory");
  }
  if (!may_be_network && IsOnNetwork(path)) {
    return Fail(ErrorCode::kInvalidArgument,
                "path '" + path + "' is on a network file system, whose changes are not all seen");
  }
  return {};
}

pb::EventType TypeOf(uint32_t mask) {
  if ((mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
    return pb::EVENT_TYPE_CREATE;
  }
  if ((mask & IN_MODIFY) != 0) {
    return pb::EVENT_TYPE_WRITE;
  }
  if ((mask & (IN_DELETE | IN_DELETE_SELF)) != 0) {
    return pb::EVENT_TYPE_REMOVE;
  }
  if ((mask & (IN_MOVED_FROM | IN_MOVE_SELF)) != 0) {
    return pb::EVENT_TYPE_RENAME;
  }
  return (mask & IN_ATTRIB) != 0 ? pb::EVENT_TYPE_CHMOD : pb::EVENT_TYPE_UNSPECIFIED;
}

std::string Below(const std::string& folder, const std::string& name) {
  return folder.empty() ? name : folder + "/" + name;
}

}  // namespace

Result<FolderWatch> FolderWatch::Create(std::string path, Options options) {
  SPACE_TRY_VOID(CheckFolder(path, options.may_be_network), "");
  UniqueFd inotify(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify.valid()) {
    return Fail(ErrorCode::kExhausted, "no more watchers: the kernel gives no inotify instance");
  }
  FolderWatch watch(std::move(inotify), std::move(path), options);
  SPACE_TRY_VOID(watch.Add("", false), "");
  return watch;
}

std::string FolderWatch::FullPath(const std::string& below) const {
  if (below.empty()) {
    return root_;
  }
  return root_ == "/" ? "/" + below : JoinPath(root_, below);
}

Result<int> FolderWatch::AddOne(const std::string& below) {
  if (folders_.size() >= kMaxFolders) {
    return Fail(ErrorCode::kExhausted,
                "more than " + std::to_string(kMaxFolders) + " directories below '" + root_ + "'");
  }
  const uint32_t link = below.empty() ? 0 : IN_DONT_FOLLOW;
  const std::string path = FullPath(below);
  const int watch = inotify_add_watch(inotify_.get(), path.c_str(), kMask | link);
  if (watch < 0 && errno == ENOSPC) {
    return Fail(ErrorCode::kExhausted,
                "the kernel's limit of watches is reached at '" + path + "'");
  }
  if (watch < 0) {
    return FailErrno("watch", path);
  }
  folders_[watch] = {.path = below, .told = {}};
  return watch;
}

Result<void> FolderWatch::Add(const std::string& below, bool tells) {
  SPACE_TRY(const int watch, AddOne(below), "");
  return options_.is_recursive ? AddContents(watch, below, tells) : Result<void>();
}

// What came in before the watch was there is told here; what comes while this runs may come twice.
Result<void> FolderWatch::AddContents(int watch, const std::string& below, bool tells) {
  const auto names = SortedNames(FullPath(below)).value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    if (queue_.size() > kMaxListed) {
      return Fail(ErrorCode::kExhausted, "'" + FullPath(below) + "' came with too many files");
    }
    const std::string path = Below(below, name);
    struct stat info {};
    if (lstat(FullPath(path).c_str(), &info) < 0) {
      continue;
    }
    if (tells) {
      folders_[watch].told.insert(name);
      Tell(path, pb::EVENT_TYPE_CREATE);
      if (S_ISREG(info.st_mode) && info.st_size > 0) {
        Tell(path, pb::EVENT_TYPE_WRITE);
      }
    }
    if (S_ISDIR(info.st_mode)) {
      const auto added = Add(path, tells);
      if (!added && added.error().code() == ErrorCode::kExhausted) {
        return added;  // any other one has gone meanwhile
      }
    }
  }
  return {};
}

// The folder at `below` and all below it are elsewhere now, or nowhere.
void FolderWatch::Forget(std::string_view below) {
  const std::string inside = std::string(below) + "/";
  for (auto at = folders_.begin(); at != folders_.end();) {
    const bool goes = at->second.path == below || at->second.path.starts_with(inside);
    if (goes) {
      inotify_rm_watch(inotify_.get(), at->first);
    }
    at = goes ? folders_.erase(at) : std::next(at);
  }
}

Result<void> FolderWatch::Read() {
  alignas(inotify_event) std::array<char, 16 * (sizeof(inotify_event) + NAME_MAX + 1)> buffer;
  users_.reset();
  while (!is_full()) {
    const ssize_t bytes = read(inotify_.get(), buffer.data(), buffer.size());
    if (bytes <= 0) {
      return {};  // EAGAIN: that is all
    }
    for (ssize_t at = 0; at < bytes;) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof(event));
      const char* name = buffer.data() + at + sizeof(event);
      at += static_cast<ssize_t>(sizeof(event) + event.len);
      if ((event.mask & IN_Q_OVERFLOW) != 0) {
        return Fail(ErrorCode::kExhausted,
                    "changes came faster than they were read: some are lost");
      }
      SPACE_TRY_VOID(Handle(event.wd, event.mask, std::string(name, strnlen(name, event.len))), "");
    }
  }
  return {};
}

Result<void> FolderWatch::Handle(int watch, uint32_t mask, const std::string& name) {
  const auto found = folders_.find(watch);
  if (found == folders_.end()) {
    return {};  // forgotten
  }
  if (!name.empty()) {
    return HandleChild(found->second, mask, name);
  }
  // Of the folder itself; that of one below the root is told by its parent.
  if (found->second.path.empty() && (mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
    Tell("", TypeOf(mask));
  }
  if ((mask & IN_IGNORED) != 0) {
    folders_.erase(found);
  }
  return {};
}

Result<void> FolderWatch::HandleChild(Folder& folder, uint32_t mask, const std::string& name) {
  const std::string path = Below(folder.path, name);
  const bool is_folder = options_.is_recursive && (mask & IN_ISDIR) != 0;
  const bool is_new = (mask & (IN_CREATE | IN_MOVED_TO)) != 0;
  const bool is_told = is_new && folder.told.erase(name) > 0;
  if ((mask & (IN_DELETE | IN_MOVED_FROM)) != 0) {
    folder.told.erase(name);
    if (is_folder) {
      Forget(path);
    }
  }
  if (is_told) {
    return {};
  }
  Tell(path, TypeOf(mask));
  if (is_new && is_folder) {
    const auto added = Add(path, true);
    if (!added && added.error().code() == ErrorCode::kExhausted) {
      return added;
    }
  }
  return {};
}

void FolderWatch::Tell(const std::string& below, EventType type) {
  if (type == pb::EVENT_TYPE_UNSPECIFIED) {
    return;
  }
  pb::FilesystemEvent event;
  event.set_name(below.empty() ? "." : AsUtf8(below));
  event.set_type(type);
  if (options_.has_entries && type != pb::EVENT_TYPE_REMOVE && type != pb::EVENT_TYPE_RENAME) {
    if (!users_) {
      users_ = UserDatabase::Load();
    }
    if (!FillEntry(FullPath(below), *users_, *event.mutable_entry())) {
      event.clear_entry();  // gone already
    }
  }
  queue_.push_back(std::move(event));
}

}  // namespace space::agent
