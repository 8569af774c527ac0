// A child process, held by pidfd (no pid reuse race).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace space {

struct SpawnSpec {
  std::string program;                   // absolute path
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // NAME=value; nothing is inherited
  // Child descriptor n is fds[n - 3]; 0, 1, 2 as below. All others are closed.
  std::vector<int> fds;
  int stdin_fd = -1;  // -1: /dev/null
  int stdout_fd = -1;
  int stderr_fd = -1;       // -1: /dev/null
  bool new_session = true;  // own session, so that the terminal's Ctrl-C passes it by
};

// How a process ended.
struct ExitStatus {
  bool by_signal = false;
  int value = 0;  // exit code or signal number
};

// Destructor kills the process, waits for it and closes the pidfd.
class [[nodiscard]] ChildProcess {
 public:
  static Result<ChildProcess> Spawn(const SpawnSpec& spec);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable once it has ended
  void Kill(int signal) const;
  // nullopt when it still runs after `limit`; nullopt limit waits for ever.
  Result<std::optional<ExitStatus>> Wait(std::optional<std::chrono::milliseconds> limit);
  // Lets it run on without us; the caller keeps the pidfd.
  UniqueFd Detach() &&;

 private:
  ChildProcess(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  void KillAndReap() noexcept;
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::optional<ExitStatus> ended_;
};

Result<UniqueFd> OpenPidfd(pid_t pid);

}  // namespace space
