// Metadata of files: headers X-Metadata-<key> of an upload, kept as xattrs user.e2b.<key>
// (E2B.md 3.7).
#pragma once

#include <map>
#include <string>

#include "base/result.h"
#include "http/message.h"

namespace space::agent {

using Metadata = std::map<std::string, std::string>;

// Keys in lower case.
//   errors: kInvalidArgument names the key: empty or longer than 246 bytes, not printable ASCII, or
//   more
//           than 4096 bytes in all
Result<Metadata> MetadataFromHeaders(const http::Headers& headers);

// Replaces the whole set. A file system without xattrs fails only when there is something to store.
Result<void> WriteMetadata(int fd, const Metadata& metadata);
// Empty where nothing can be read.
Metadata ReadMetadata(const std::string& path);

}  // namespace space::agent
