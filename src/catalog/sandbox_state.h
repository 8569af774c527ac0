// The states of a sandbox and the moves between them: the only place that knows which are legal.
//
//   creating --> running --> stopping --> dead
//      |            |                       ^
//      |            +-- it ended by itself -+
//      +-- it failed, or the daemon died ---+
//
// Later issues add rows (pausing, paused, ...), nothing else.
#pragma once

#include <string_view>

#include "base/result.h"

namespace space {

enum class SandboxState { kCreating, kRunning, kStopping, kDead };

// "creating", ...: the word in the catalog, the native API and the logs.
std::string_view SandboxStateName(SandboxState state);
Result<SandboxState> ParseSandboxState(std::string_view name);

// kConflict, naming both states, for a move that is not in the table.
Result<void> CheckMove(SandboxState from, SandboxState to);

// True while there is a process, or may be one.
bool IsLive(SandboxState state);

}  // namespace space
