#include "agent/entry.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "agent/metadata.h"
#include "agent/paths.h"

namespace space::agent {
namespace {

namespace pb = rpc::filesystem;

// Years 1 to 9999: what protobuf's JSON can print. A file's owner may set any time.
constexpr int64_t kMinSeconds = -62'135'596'800;
constexpr int64_t kMaxSeconds = 253'402'300'799;

pb::FileType TypeOf(mode_t mode) {
  if (S_ISREG(mode)) {
    return pb::FILE_TYPE_FILE;
  }
  if (S_ISDIR(mode)) {
    return pb::FILE_TYPE_DIRECTORY;
  }
  return S_ISLNK(mode) ? pb::FILE_TYPE_SYMLINK : pb::FILE_TYPE_UNSPECIFIED;
}

// Length of the valid UTF-8 sequence at the start of `bytes`, 0 when there is none (RFC 3629).
size_t Utf8Length(std::string_view bytes) {
  const auto at = [&bytes](size_t i) -> unsigned {
    return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0U;
  };
  const auto continues = [&at](size_t i) { return (at(i) & 0xc0) == 0x80; };
  const unsigned lead = at(0);
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xc2 && lead < 0xe0 && continues(1)) {
    return 2;
  }
  if (lead >= 0xe0 && lead < 0xf0 && continues(1) && continues(2)) {
    const unsigned point = (lead & 0xf) << 12 | (at(1) & 0x3f) << 6;
    return point >= 0x800 && (point < 0xd800 || point >= 0xe000) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead < 0xf5 && continues(1) && continues(2) && continues(3)) {
    const unsigned point = (lead & 0x7) << 18 | (at(1) & 0x3f) << 12;
    return point >= 0x10000 && point < 0x110000 ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string AsUtf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    text += length > 0 ? bytes.substr(0, length) : "\xef\xbf\xbd";
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

std::string GoPermissions(mode_t mode) {
  std::string text;
  const auto add_if = [&text](bool is_set, char letter) {
    if (is_set) {
      text += letter;
    }
  };
  // Go's order of letters: "dalTLDpSugct?".
  add_if(S_ISDIR(mode), 'd');
  add_if(S_ISLNK(mode), 'L');
  add_if(S_ISBLK(mode) || S_ISCHR(mode), 'D');
  add_if(S_ISFIFO(mode), 'p');
  add_if(S_ISSOCK(mode), 'S');
  add_if((mode & S_ISUID) != 0, 'u');
  add_if((mode & S_ISGID) != 0, 'g');
  add_if(S_ISCHR(mode), 'c');
  add_if((mode & S_ISVTX) != 0, 't');
  if (text.empty()) {
    text += '-';
  }
  for (int bit = 8; bit >= 0; --bit) {
    text += (mode >> bit & 1) != 0 ? "xwr"[bit % 3] : '-';
  }
  return text;
}

Result<void> FillEntry(const std::string& path, const UserDatabase& users, pb::EntryInfo& entry) {
  struct stat info {};
  if (lstat(path.c_str(), &info) < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return Fail(ErrorCode::kNotFound, "path '" + path + "' does not exist");
    }
    return FailErrno("stat", path);
  }
  entry.set_name(AsUtf8(BaseName(path)));
  entry.set_path(AsUtf8(path));
  entry.set_size(info.st_size);
  entry.set_permissions(GoPermissions(info.st_mode));
  entry.set_owner(AsUtf8(users.UserName(info.st_uid)));
  entry.set_group(AsUtf8(users.GroupName(info.st_gid)));
  entry.mutable_modified_time()->set_seconds(
      std::clamp<int64_t>(info.st_mtim.tv_sec, kMinSeconds, kMaxSeconds));
  entry.mutable_modified_time()->set_nanos(static_cast<int32_t>(info.st_mtim.tv_nsec));
  if (!S_ISLNK(info.st_mode)) {
    entry.set_type(TypeOf(info.st_mode));
    entry.set_mode(info.st_mode & 0777);
  } else {
    char resolved[PATH_MAX];
    struct stat target {};
    const bool is_whole = realpath(path.c_str(), resolved) != nullptr;
    entry.set_symlink_target(AsUtf8(is_whole ? resolved : path));
    if (is_whole && stat(resolved, &target) == 0) {
      entry.set_type(TypeOf(target.st_mode));
      entry.set_mode(target.st_mode & 0777);
    }
  }
  for (const auto& [key, value] : ReadMetadata(path)) {
    (*entry.mutable_metadata())[AsUtf8(key)] = value;
  }
  return {};
}

}  // namespace space::agent
