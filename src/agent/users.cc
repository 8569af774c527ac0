#include "agent/users.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "agent/text_file.h"

namespace space::agent {
namespace {

constexpr size_t kMaxLineBytes = 64 * 1024;  // a group may list thousands of members
constexpr size_t kMaxEntries = 65'536;

std::string_view TakeUntil(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return taken;
}

std::optional<uint32_t> ParseId(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // 4294967295 means "leave unchanged" to setresuid: such a user would run as root.
  if (error != std::errc() || end != text.data() + text.size() || value == UINT32_MAX) {
    return std::nullopt;
  }
  return value;
}

bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

std::string ReadOrEmpty(const std::string& path) {
  return ReadRegularFile(path, UserDatabase::kMaxFileBytes).value_or(std::string());
}

}  // namespace

UserDatabase::UserDatabase(std::string_view passwd, std::string_view group) {
  ParsePasswd(passwd);
  ParseGroup(group);
  if (users_.empty()) {
    users_.push_back({.name = "root", .uid = 0, .gid = 0, .home = "/root", .groups = {}});
  }
}

UserDatabase UserDatabase::Load() {
  return UserDatabase(ReadOrEmpty("/etc/passwd"), ReadOrEmpty("/etc/group"));
}

void UserDatabase::ParsePasswd(std::string_view text) {
  while (!text.empty() && users_.size() < kMaxEntries) {
    std::string_view line = TakeUntil(text, '\n');
    if (line.size() > kMaxLineBytes || HasNul(line) ||
        std::count(line.begin(), line.end(), ':') != 6) {
      continue;
    }
    std::array<std::string_view, 7> fields;  // name:password:uid:gid:comment:home:shell
    for (std::string_view& field : fields) {
      field = TakeUntil(line, ':');
    }
    const auto uid = ParseId(fields[2]);
    const auto gid = ParseId(fields[3]);
    if (fields[0].empty() || !uid || !gid) {
      continue;
    }
    const std::string_view home = fields[5].starts_with('/') ? fields[5] : "/";
    users_.push_back({.name = std::string(fields[0]),
                      .uid = *uid,
                      .gid = *gid,
                      .home = std::string(home),
                      .groups = {}});
  }
}

void UserDatabase::ParseGroup(std::string_view text) {
  while (!text.empty() && groups_.size() < kMaxEntries) {
    std::string_view line = TakeUntil(text, '\n');
    if (line.size() > kMaxLineBytes || HasNul(line) ||
        std::count(line.begin(), line.end(), ':') != 3) {
      continue;
    }
    const std::string_view name = TakeUntil(line, ':');
    TakeUntil(line, ':');
    const auto gid = ParseId(TakeUntil(line, ':'));
    if (name.empty() || !gid) {
      continue;
    }
    Group group{.name = std::string(name), .gid = *gid, .members = {}};
    while (!line.empty()) {
      const std::string_view member = TakeUntil(line, ',');
      if (!member.empty()) {
        group.members.emplace_back(member);
      }
    }
    groups_.push_back(std::move(group));
  }
}

Result<User> UserDatabase::Find(std::string_view name) const {
  const auto found = std::find_if(users_.begin(), users_.end(),
                                  [name](const User& user) { return user.name == name; });
  if (found == users_.end()) {
    return Fail(ErrorCode::kUnauthenticated, "invalid username: '" + std::string(name) + "'");
  }
  User user = *found;
  user.groups.push_back(user.gid);
  for (const Group& group : groups_) {
    const bool is_member =
        std::find(group.members.begin(), group.members.end(), name) != group.members.end();
    if (is_member && group.gid != user.gid && user.groups.size() < kMaxGroups) {
      user.groups.push_back(group.gid);
    }
  }
  return user;
}

std::string UserDatabase::UserName(uid_t uid) const {
  const auto found = std::find_if(users_.begin(), users_.end(),
                                  [uid](const User& user) { return user.uid == uid; });
  return found == users_.end() ? std::to_string(uid) : found->name;
}

std::string UserDatabase::GroupName(gid_t gid) const {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [gid](const Group& group) { return group.gid == gid; });
  return found == groups_.end() ? std::to_string(gid) : found->name;
}

}  // namespace space::agent
