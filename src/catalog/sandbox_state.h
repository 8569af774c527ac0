// The states of a sandbox and the moves between them: the only place that knows which are legal.
//
//   creating --> running --> stopping --> dead
//      |           ^  ^ |                    ^
//      |           |  | +-- ended by itself -+
//      |           |  +--> snapshotting -----+   (the guest goes on; back when it is done)
//      |           +-----> pausing --> paused --> dead
//      |           |                    |  ^
//      |           +------ resuming <---+  |      (back to paused when it fails)
//      |                      +------------+
//      +-- it failed, or the daemon died ------> dead
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace space {

enum class SandboxState {
  kCreating,
  kRunning,
  kSnapshotting,
  kPausing,
  kPaused,
  kResuming,
  kStopping,
  kDead
};

// "creating", ...: the word in the catalog, the native API and the logs.
std::string_view SandboxStateName(SandboxState state);
Result<SandboxState> ParseSandboxState(std::string_view name);

// kConflict, naming both states, for a move that is not in the table.
Result<void> CheckMove(SandboxState from, SandboxState to);

// True until it is dead: there is a process, or may be one, or a snapshot to go on from.
bool IsLive(SandboxState state);

// What E2B's clients see: a sandbox in a move is what it was, or will be, that promises less.
enum class ShownState { kHidden, kRunning, kPaused };
ShownState ShownAs(SandboxState state);
std::string_view ShownStateName(ShownState state);  // "running", "paused"
std::vector<SandboxState> StatesShownAs(ShownState shown);

}  // namespace space
