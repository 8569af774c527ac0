// Path rules of envd (E2B.md 3.3 and 3.4), on text alone: nothing is looked up.
#pragma once

#include <string>
#include <string_view>

#include "agent/users.h"
#include "base/result.h"

namespace space::agent {

// Absolute form: "/x" as it is, "~" and "~/x" in the user's home, all else below `workdir`, or
// below the home when that is empty. "" is the base itself. "." and ".." and double slashes are
// resolved.
//   errors: kInvalidArgument for a NUL byte, for more than 4095 bytes, for "~name"
Result<std::string> ResolvePath(std::string_view path, const User& user, std::string_view workdir);

// Lexical clean-up of an absolute path; the result has no trailing slash unless it is "/".
std::string CleanPath(std::string_view path);

std::string_view BaseName(std::string_view clean_path);    // "/" for the root
std::string_view ParentPath(std::string_view clean_path);  // "/" for the root and its children
std::string JoinPath(std::string_view folder, std::string_view name);

}  // namespace space::agent
