// Starting a program of the user's. The agent is a large static process, so the child shares its
// memory until exec (as vfork does) and touches nothing but system calls meanwhile.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "agent/users.h"
#include "base/result.h"

namespace space::agent {

struct SpawnRequest {
  std::string command;                   // a path, or a name looked up in PATH of `environment`
  std::vector<std::string> arguments;    // without argv[0]
  std::vector<std::string> environment;  // NAME=value, all of it
  std::string cwd;                       // absolute
  User user;
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  bool is_terminal = false;  // stdin_fd is a terminal: it becomes the controlling one
  // cgroup v2 folder that the process is born in. -1, or when it takes none: the agent's own.
  int cgroup_fd = -1;
};

// The child leads its own session and process group, has no other descriptors, default signal
// dispositions and an OOM score adjustment of 100. Returns once exec has succeeded. Only from the
// agent's main thread. With a frozen `cgroup_fd` this never returns: look first (freezer.h).
//   errors: kNotFound or kPermissionDenied name the command; kInvalidArgument names the directory
Result<pid_t> Spawn(const SpawnRequest& request);

}  // namespace space::agent
