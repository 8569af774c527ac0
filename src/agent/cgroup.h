// Files of a cgroup v2 hierarchy, by descriptors of its folders. What they tell belongs to the
// guest's user: lists and depths are bounded. Any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space::agent::cgroup {

// kInvalidArgument when `folder` is of another file system, such as cgroup v1.
Result<void> CheckVersion2(int folder);
// The group `name` in `parent`, made when it is not there.
Result<UniqueFd> Make(int parent, const std::string& name);
Result<std::vector<std::string>> Children(int folder);
// errors: as of errno; kNotFound when the group is gone
Result<void> WriteFile(int folder, const std::string& name, std::string_view text);
// From an open cgroup.events: all processes of the group and of those below it are frozen.
bool IsFrozen(int events);
// Somebody has already ordered the group `name` to freeze.
bool IsOrderedToFreeze(int parent, const std::string& name);

// Of the group alone, without those below it.
std::vector<pid_t> Processes(int folder);
// As Processes, without kernel threads and the caller.
std::vector<pid_t> UserProcesses(int folder);
// Threads of the group `name` and below that run or cannot be interrupted, which is what keeps it
// from freezing.
std::vector<pid_t> RunningThreads(int parent, const std::string& name);
Result<void> Move(pid_t pid, int into_folder);
// "12 (cat, state D)"
std::string DescribeThread(pid_t tid);

}  // namespace space::agent::cgroup
