#include "catalog/sandbox_state.h"

#include <array>
#include <string>

namespace space {
namespace {

struct StateRow {
  SandboxState state;
  std::string_view name;
  bool is_live;
};
constexpr std::array<StateRow, 4> kStates = {{
    {SandboxState::kCreating, "creating", true},
    {SandboxState::kRunning, "running", true},
    {SandboxState::kStopping, "stopping", true},
    {SandboxState::kDead, "dead", false},
}};

struct MoveRow {
  SandboxState from;
  SandboxState to;
  std::string_view when;
};
constexpr std::array<MoveRow, 5> kMoves = {{
    {SandboxState::kCreating, SandboxState::kRunning, "the agent has taken its settings"},
    {SandboxState::kCreating, SandboxState::kDead, "a step of creation failed, or it was killed"},
    {SandboxState::kRunning, SandboxState::kStopping, "kill was asked for, or its time is over"},
    {SandboxState::kRunning, SandboxState::kDead, "the VM ended by itself"},
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

}  // namespace space
