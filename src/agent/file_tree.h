// Changes to the guest's file tree on a client's behalf, done as root and given to the user (E2B.md
// 3.4, 3.7). Paths are absolute and clean. Any thread.
#pragma once

#include <string>
#include <vector>

#include "agent/proto/filesystem.pb.h"
#include "agent/users.h"
#include "base/result.h"

namespace space::agent {

// The names in a folder, without "." and "..".
Result<std::vector<std::string>> SortedNames(const std::string& folder);

// Makes missing folders of `path` and itself, 0755 and owned by `user`. Existing folders are left
// alone.
//   errors: kInvalidArgument when something on the way is no folder
Result<void> MakeFolders(const std::string& path, const User& user);
// As MakeFolders, but kConflict when `path` is a folder already.
Result<void> MakeNewFolder(const std::string& path, const User& user);
// Renames, also across file systems for files; missing parents of the destination are made.
Result<void> MoveEntry(const std::string& from, const std::string& to, const User& user);
// Everything at and below `path`, without following links. Missing is success.
Result<void> RemoveEntry(const std::string& path);
// Depth first in lexical order, `path` itself left out. A linked folder is followed at the top
// only.
//   errors: kNotFound, kInvalidArgument for what is no folder, kExhausted beyond kMaxListed
constexpr int kMaxListed = 200'000;
Result<void> ListTree(const std::string& path, uint32_t depth, const UserDatabase& users,
                      rpc::filesystem::ListDirResponse& into);

}  // namespace space::agent
