#include "machine/run_state.h"

#include <charconv>
#include <map>
#include <sstream>

namespace space::machine {

Result<uint64_t> StartTicksOf(pid_t pid) {
  SPACE_TRY(const std::string text, ReadFile("/proc/" + std::to_string(pid) + "/stat"),
            "look at process");
  // The second field is the name in parentheses and may hold anything, so count from its end.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return Fail(ErrorCode::kInternal, "stat of a process has no name", std::to_string(pid));
  }
  std::istringstream rest(text.substr(name_end + 1));
  std::string field;
  for (int number = 3; number <= 22; ++number) {
    rest >> field;
    // A zombie has ended; only its parent has not looked yet.
    if (number == 3 && (field == "Z" || field == "X")) {
      return Fail(ErrorCode::kNotFound, "process has ended", std::to_string(pid));
    }
  }
  uint64_t ticks = 0;
  std::from_chars(field.data(), field.data() + field.size(), ticks);
  return ticks;
}

std::string FormatRunState(const RunState& state) {
  std::ostringstream out;
  out << "pid " << state.pid << "\nstart " << state.start_ticks << "\nport " << state.port
      << "\nmemory " << state.memory_bytes << "\ncpus " << state.cpus << "\n";
  return out.str();
}

Result<RunState> ParseRunState(const std::string& text) {
  std::istringstream in(text);
  std::map<std::string, uint64_t> values;
  std::string name;
  uint64_t value = 0;
  while (in >> name >> value) {
    values[name] = value;
  }
  RunState state;
  state.pid = static_cast<pid_t>(values["pid"]);
  state.start_ticks = values["start"];
  state.port = static_cast<uint16_t>(values["port"]);
  state.memory_bytes = values["memory"];
  state.cpus = static_cast<uint32_t>(values["cpus"]);
  if (state.pid <= 0 || state.start_ticks == 0) {
    return Fail(ErrorCode::kInvalidArgument, "state file names no process");
  }
  return state;
}

Result<void> SaveRunState(const std::string& path, const RunState& state) {
  return WriteFileAtomically(path, FormatRunState(state));
}

std::optional<RunState> LoadRunning(const std::string& path) {
  const auto text = ReadFile(path);
  if (!text) {
    return std::nullopt;
  }
  const auto state = ParseRunState(*text);
  if (!state) {
    return std::nullopt;
  }
  const auto ticks = StartTicksOf(state->pid);
  if (!ticks || *ticks != state->start_ticks) {
    return std::nullopt;
  }
  return *state;
}

}  // namespace space::machine
