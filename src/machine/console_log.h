// Bounded log of what QEMU and the machine's serial line say.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace space::machine {

// Copies `input_fd` to `path` until its end. When the file has `limit_bytes` it is renamed to
// PATH.1 (over an older one) and a new one begins, so at most twice the limit is kept.
Result<void> CopyToLog(int input_fd, const std::string& path, size_t limit_bytes);

// The last `lines` lines, escape sequences and other control characters left out; "" when there is
// nothing.
std::string LogTail(const std::string& path, size_t lines);

}  // namespace space::machine
