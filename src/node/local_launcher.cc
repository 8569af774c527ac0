#include "node/local_launcher.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <utility>

#include "base/process.h"
#include "base/seqpacket.h"

namespace space {
namespace {

constexpr std::string_view kSocketSuffix = ".sock";

}  // namespace

Result<int64_t> ProcessStartTicks(pid_t pid) {
  SPACE_TRY(const std::string text, ReadFile("/proc/" + std::to_string(pid) + "/stat"),
            "read start time of process");
  // proc(5): field 2 is the name in parentheses, which may hold anything; 22 is the start time.
  std::string_view rest = text;
  const size_t name_end = rest.rfind(')');
  if (name_end == std::string_view::npos) {
    return Fail(ErrorCode::kInternal, "process has no name in its stat");
  }
  rest.remove_prefix(name_end + 1);
  for (int field = 2; field < 22; ++field) {
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos) {
      return Fail(ErrorCode::kInternal, "process stat is short");
    }
    rest.remove_prefix(space + 1);
  }
  int64_t ticks = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), ticks);
  if (error != std::errc()) {
    return Fail(ErrorCode::kInternal, "process has no start time");
  }
  return ticks;
}

Result<UniqueFd> OpenProcess(pid_t pid, int64_t start_ticks) {
  if (pid <= 0) {
    return Fail(ErrorCode::kNotFound, "no process was started");
  }
  SPACE_TRY(UniqueFd pidfd, OpenPidfd(pid), "find process");
  // Read after opening: if the time is right now, the pidfd is of that process.
  SPACE_TRY(const int64_t ticks, ProcessStartTicks(pid), "find process");
  if (ticks != start_ticks) {
    return Fail(ErrorCode::kNotFound, "pid belongs to another process now", std::to_string(pid));
  }
  return pidfd;
}

std::string LocalLauncher::ControlPath(const std::string& sandbox_id) const {
  return socket_dir_ + "/" + sandbox_id + std::string(kSocketSuffix);
}

Result<Launched> LocalLauncher::Launch(const wire::LaunchRequest& request,
                                       std::vector<UniqueFd> descriptors) {
  if (descriptors.empty()) {
    return Fail(ErrorCode::kInternal, "launch without a log");
  }
  Launched launched;
  launched.control_path = ControlPath(request.sandbox_id);
  SPACE_TRY(const UniqueFd control, ListenSeqpacket(launched.control_path), "launch");
  SpawnSpec spec;
  spec.program = vmm_program_;
  spec.stderr_fd = descriptors[0].get();
  spec.fds = {control.get()};
  for (size_t at = 1; at < descriptors.size(); ++at) {
    spec.fds.push_back(descriptors[at].get());
  }
  auto child = ChildProcess::Spawn(spec);
  if (!child) {
    Release(request.sandbox_id);
    return Fail(std::move(child).error().While("launch"));
  }
  launched.pid = child->pid();
  launched.pidfd = std::move(*child).Detach();
  return launched;
}

void LocalLauncher::Release(const std::string& sandbox_id) {
  ::unlink(ControlPath(sandbox_id).c_str());
}

Result<std::vector<std::string>> LocalLauncher::Existing() {
  std::vector<std::string> ids;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(socket_dir_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kSocketSuffix)) {
      ids.push_back(name.substr(0, name.size() - kSocketSuffix.size()));
    }
  }
  if (error) {
    return Fail(ErrorCode::kIo, "list " + socket_dir_ + ": " + error.message());
  }
  return ids;
}

}  // namespace space
