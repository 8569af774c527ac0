// Configuration files of the guest's root file system, which belong to the user: they may be
// anything. Any thread.
#pragma once

#include <string>

#include "base/result.h"

namespace space::agent {

// A regular file's text. Never blocks, as reading a pipe put in its place would.
//   errors: kInvalidArgument when it is not a regular file, kExhausted beyond `limit` bytes
Result<std::string> ReadRegularFile(const std::string& path, size_t limit);

}  // namespace space::agent
