// Facts about one file as envd reports them (E2B.md 3.4, Stat). Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "agent/proto/filesystem.pb.h"
#include "agent/users.h"
#include "base/result.h"

namespace space::agent {

// Go's FileMode.String: "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx".
std::string GoPermissions(mode_t mode);

// `path` is absolute and clean.
//   errors: kNotFound, exactly: path '/x' does not exist
Result<void> FillEntry(const std::string& path, const UserDatabase& users,
                       rpc::filesystem::EntryInfo& entry);

// Protobuf strings must be UTF-8, file names need not be: other bytes become U+FFFD.
std::string AsUtf8(std::string_view bytes);

}  // namespace space::agent
