// Changes in a folder, or in a tree of folders, as the kernel tells them (inotify(7)), in the words
// of envd (E2B.md 3.4, WatchDir). No thread of its own: read what `fd` announces. One thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "agent/proto/filesystem.pb.h"
#include "agent/users.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

class FolderWatch {
 public:
  static constexpr size_t kMaxFolders = 8192;
  // More than these wait in the kernel, which drops events beyond 16,384 of its own.
  static constexpr size_t kMaxQueued = 8192;
  // A tree that is moved in may bring this many more.
  static constexpr size_t kMaxListed = 65'536;

  struct Options {
    bool is_recursive = false;
    bool has_entries = false;  // each event carries what `path` is now
    bool may_be_network = false;
  };
  // `path` is absolute and clean. Lists a whole tree when it is recursive: may take long.
  //   errors: kNotFound, kInvalidArgument for what is no folder or lies on a network file system,
  //   kExhausted beyond kMaxFolders or the kernel's limits
  static Result<FolderWatch> Create(std::string path, Options options);

  int fd() const { return inotify_.get(); }
  // Takes what the kernel has, as long as there is room.
  //   errors: kExhausted when events were lost; those before it are queued
  Result<void> Read();
  bool is_full() const { return queue_.size() >= kMaxQueued; }
  std::deque<rpc::filesystem::FilesystemEvent>& queue() { return queue_; }

 private:
  using EventType = rpc::filesystem::EventType;
  // One watched folder: where it is below the root ("" is the root), and the names that were told
  // since they were found by listing it, in case the kernel tells them again.
  struct Folder {
    std::string path;
    std::set<std::string> told;
  };

  FolderWatch(UniqueFd inotify, std::string path, Options options)
      : inotify_(std::move(inotify)), root_(std::move(path)), options_(options) {}
  // Watches it and, if asked, all below. `tells`: what is in it is new to the client.
  Result<void> Add(const std::string& below, bool tells);
  Result<int> AddOne(const std::string& below);
  Result<void> AddContents(int watch, const std::string& below, bool tells);
  void Forget(std::string_view below);
  Result<void> Handle(int watch, uint32_t mask, const std::string& name);
  Result<void> HandleChild(Folder& folder, uint32_t mask, const std::string& name);
  void Tell(const std::string& below, EventType type);
  std::string FullPath(const std::string& below) const;

  UniqueFd inotify_;
  std::string root_;
  Options options_;
  std::map<int, Folder> folders_;  // by watch descriptor
  std::deque<rpc::filesystem::FilesystemEvent> queue_;
  std::optional<UserDatabase> users_;  // for the entries of one Read
};

}  // namespace space::agent
