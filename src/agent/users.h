// Users and groups, read from /etc/passwd and /etc/group by ourselves: a static getpwnam needs
// glibc's shared files (NSS), which the user's root file system may lack. Both files belong to the
// user, so lines are bounded and whatever does not parse is skipped. Any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::agent {

struct User {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::string home;
  std::vector<gid_t> groups;  // supplementary, gid first; at most kMaxGroups
};

class UserDatabase {
 public:
  static constexpr size_t kMaxGroups = 256;
  static constexpr size_t kMaxFileBytes = 4 << 20;

  // From the two files' text. Without any valid passwd line there is one user, root.
  UserDatabase(std::string_view passwd, std::string_view group);
  // Reads /etc/passwd and /etc/group; absent files count as empty.
  static UserDatabase Load();

  // kUnauthenticated, exactly: invalid username: 'x'
  Result<User> Find(std::string_view name) const;
  // Names for listings; the number as text when there is none.
  std::string UserName(uid_t uid) const;
  std::string GroupName(gid_t gid) const;

 private:
  struct Group {
    std::string name;
    gid_t gid;
    std::vector<std::string> members;
  };
  void ParsePasswd(std::string_view text);
  void ParseGroup(std::string_view text);

  std::vector<User> users_;
  std::vector<Group> groups_;
};

}  // namespace space::agent
