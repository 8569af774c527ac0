#include "agent/metadata.h"

#include <sys/xattr.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace space::agent {
namespace {

constexpr std::string_view kHeaderPrefix = "x-metadata-";
constexpr std::string_view kAttributePrefix = "user.e2b.";
constexpr size_t kMaxKeyBytes = 246;  // Linux: 255 for a name, with the prefix
constexpr size_t kMaxTotalBytes = 4096;
constexpr size_t kMaxListBytes = 64 * 1024;  // Linux: XATTR_LIST_MAX

bool IsPrintable(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return lower;
}

// Names of ours in what listxattr gave: NUL-terminated strings.
std::vector<std::string> OurNames(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = list.find('\0');
    const std::string_view name = list.substr(0, end);
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    if (name.starts_with(kAttributePrefix)) {
      names.emplace_back(name);
    }
  }
  return names;
}

}  // namespace

Result<Metadata> MetadataFromHeaders(const http::Headers& headers) {
  Metadata metadata;
  size_t total = 0;
  for (const http::Header& header : headers.all()) {
    const std::string name = Lower(header.name);
    if (!name.starts_with(kHeaderPrefix)) {
      continue;
    }
    const std::string key = name.substr(kHeaderPrefix.size());
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return Fail(ErrorCode::kInvalidArgument, "metadata key must have 1 to 246 bytes", key);
    }
    if (!IsPrintable(header.value)) {
      return Fail(ErrorCode::kInvalidArgument, "metadata value is not printable ASCII", key);
    }
    total += key.size() + header.value.size();
    if (total > kMaxTotalBytes) {
      return Fail(ErrorCode::kInvalidArgument, "metadata is larger than 4096 bytes in all");
    }
    metadata[key] = header.value;
  }
  return metadata;
}

Result<void> WriteMetadata(int fd, const Metadata& metadata) {
  const ssize_t size = flistxattr(fd, nullptr, 0);
  if (size > 0) {
    std::string list(kMaxListBytes, '\0');
    const ssize_t got = flistxattr(fd, list.data(), list.size());
    list.resize(got > 0 ? static_cast<size_t>(got) : 0);
    for (const std::string& name : OurNames(list)) {
      fremovexattr(fd, name.c_str());
    }
  }
  for (const auto& [key, value] : metadata) {
    const std::string name = std::string(kAttributePrefix) + key;
    if (fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) < 0) {
      return FailErrno("store metadata", key);
    }
  }
  return {};
}

Metadata ReadMetadata(const std::string& path) {
  Metadata metadata;
  const ssize_t size = llistxattr(path.c_str(), nullptr, 0);
  if (size <= 0) {
    return metadata;
  }
  std::string list(static_cast<size_t>(size), '\0');
  const ssize_t got = llistxattr(path.c_str(), list.data(), list.size());
  list.resize(got > 0 ? static_cast<size_t>(got) : 0);
  for (const std::string& name : OurNames(list)) {
    char value[kMaxTotalBytes];
    const ssize_t bytes = lgetxattr(path.c_str(), name.c_str(), value, sizeof(value));
    // Programs in the guest may store anything: what is not text is not shown.
    if (bytes >= 0 && IsPrintable({value, static_cast<size_t>(bytes)})) {
      metadata[name.substr(kAttributePrefix.size())] =
          std::string(value, static_cast<size_t>(bytes));
    }
  }
  return metadata;
}

}  // namespace space::agent
