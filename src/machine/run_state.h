// Which QEMU process is our machine. A pid alone may be reused, hence the start time beside it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.h"

namespace space::machine {

struct RunState {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat (proc(5)): clock ticks since boot
  uint16_t port = 0;
  uint64_t memory_bytes = 0;
  uint32_t cpus = 0;
};

// kNotFound when the process is gone.
Result<uint64_t> StartTicksOf(pid_t pid);

std::string FormatRunState(const RunState& state);
Result<RunState> ParseRunState(const std::string& text);

Result<void> SaveRunState(const std::string& path, const RunState& state);
// The machine that runs now; nullopt when there is no file, or the process it names is gone or
// another one.
std::optional<RunState> LoadRunning(const std::string& path);

}  // namespace space::machine
