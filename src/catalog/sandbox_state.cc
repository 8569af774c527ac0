#include "catalog/sandbox_state.h"

#include <array>
#include <string>

namespace space {
namespace {

struct StateRow {
  SandboxState state;
  std::string_view name;
  bool is_live;
  ShownState shown;
};
constexpr std::array<StateRow, 8> kStates = {{
    {SandboxState::kCreating, "creating", true, ShownState::kHidden},
    {SandboxState::kRunning, "running", true, ShownState::kRunning},
    {SandboxState::kSnapshotting, "snapshotting", true, ShownState::kRunning},
    {SandboxState::kPausing, "pausing", true, ShownState::kPaused},
    {SandboxState::kPaused, "paused", true, ShownState::kPaused},
    {SandboxState::kResuming, "resuming", true, ShownState::kPaused},
    {SandboxState::kStopping, "stopping", true, ShownState::kHidden},
    {SandboxState::kDead, "dead", false, ShownState::kHidden},
}};

struct MoveRow {
  SandboxState from;
  SandboxState to;
  std::string_view when;
};
constexpr std::array<MoveRow, 16> kMoves = {{
    {SandboxState::kCreating, SandboxState::kRunning, "the agent has taken its settings"},
    {SandboxState::kCreating, SandboxState::kDead, "a step of creation failed, or it was killed"},
    {SandboxState::kRunning, SandboxState::kStopping, "kill was asked for, or its time is over"},
    {SandboxState::kRunning, SandboxState::kDead, "the VM ended by itself"},
    {SandboxState::kRunning, SandboxState::kSnapshotting, "a snapshot or fork was asked for"},
    {SandboxState::kSnapshotting, SandboxState::kRunning, "it is done, or failed"},
    {SandboxState::kSnapshotting, SandboxState::kDead, "the VM ended by itself"},
    {SandboxState::kRunning, SandboxState::kPausing, "pause was asked for, or its time is over"},
    {SandboxState::kPausing, SandboxState::kRunning, "the snapshot failed; the guest goes on"},
    {SandboxState::kPausing, SandboxState::kPaused, "the snapshot is on disk, the VM is gone"},
    {SandboxState::kPausing, SandboxState::kDead, "the VM ended before its snapshot was whole"},
    {SandboxState::kPaused, SandboxState::kResuming, "resume was asked for"},
    {SandboxState::kPaused, SandboxState::kDead, "kill was asked for"},
    {SandboxState::kResuming, SandboxState::kRunning, "the agent has taken its settings"},
    {SandboxState::kResuming, SandboxState::kPaused, "a step failed; its snapshot is as it was"},
    {SandboxState::kStopping, SandboxState::kDead, "the process is gone and its files are removed"},
}};

const StateRow& RowOf(SandboxState state) {
  for (const StateRow& row : kStates) {
    if (row.state == state) {
      return row;
    }
  }
  SPACE_CHECK(!"every state has a row");
  return kStates[0];
}

}  // namespace

std::string_view SandboxStateName(SandboxState state) { return RowOf(state).name; }

Result<SandboxState> ParseSandboxState(std::string_view name) {
  for (const StateRow& row : kStates) {
    if (row.name == name) {
      return row.state;
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "unknown sandbox state", name);
}

Result<void> CheckMove(SandboxState from, SandboxState to) {
  for (const MoveRow& row : kMoves) {
    if (row.from == from && row.to == to) {
      return {};
    }
  }
  return Fail(ErrorCode::kConflict, "sandbox cannot go from " +
                                        std::string(SandboxStateName(from)) + " to " +
                                        std::string(SandboxStateName(to)));
}

bool IsLive(SandboxState state) { return RowOf(state).is_live; }

ShownState ShownAs(SandboxState state) { return RowOf(state).shown; }

std::string_view ShownStateName(ShownState state) {
  return state == ShownState::kRunning  ? "running"
         : state == ShownState::kPaused ? "paused"
                                        : "hidden";
}

std::vector<SandboxState> StatesShownAs(ShownState shown) {
  std::vector<SandboxState> states;
  for (const StateRow& row : kStates) {
    if (row.shown == shown) {
      states.push_back(row.state);
    }
  }
  return states;
}

}  // namespace space
