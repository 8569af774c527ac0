#include "agent/paths.h"

#include <vector>

namespace space::agent {

namespace {
constexpr size_t kMaxPathBytes = 4095;  // Linux's PATH_MAX without the NUL
}  // namespace

std::string CleanPath(std::string_view path) {
  std::vector<std::string_view> kept;
  while (!path.empty()) {
    const size_t slash = path.find('/');
    const std::string_view segment = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (segment == "..") {
      if (!kept.empty()) {
        kept.pop_back();
      }
    } else if (!segment.empty() && segment != ".") {
      kept.push_back(segment);
    }
  }
  std::string clean;
  for (const std::string_view segment : kept) {
    clean += '/';
    clean += segment;
  }
  return clean.empty() ? "/" : clean;
}

Result<std::string> ResolvePath(std::string_view path, const User& user, std::string_view workdir) {
  if (path.find('\0') != std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "path contains a NUL byte");
  }
  std::string absolute;
  if (path.starts_with('/')) {
    absolute = path;
  } else if (path == "~" || path.starts_with("~/")) {
    absolute = JoinPath(user.home, path.substr(1));
  } else if (path.starts_with('~')) {
    return Fail(ErrorCode::kInvalidArgument, "home directories of other users are not expanded",
                path);
  } else if (workdir.empty() || !workdir.starts_with('/')) {
    absolute = JoinPath(user.home, path);
  } else {
    absolute = JoinPath(workdir, path);
  }
  std::string clean = CleanPath(absolute);
  if (clean.size() > kMaxPathBytes) {
    return Fail(ErrorCode::kInvalidArgument, "path is longer than 4095 bytes");
  }
  return clean;
}

std::string_view BaseName(std::string_view clean_path) {
  const size_t slash = clean_path.rfind('/');
  if (slash == std::string_view::npos || clean_path.size() == 1) {
    return clean_path;
  }
  return clean_path.substr(slash + 1);
}

std::string_view ParentPath(std::string_view clean_path) {
  const size_t slash = clean_path.rfind('/');
  return slash == std::string_view::npos || slash == 0 ? "/" : clean_path.substr(0, slash);
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  std::string joined(folder);
  joined += '/';
  joined += name;
  return joined;
}

}  // namespace space::agent
