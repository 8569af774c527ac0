// Programs of the image that run after each restore, before the user's processes go on.
#pragma once

#include <chrono>
#include <string>

#include "agent/freezer.h"
#include "agent/process_table.h"

namespace space::agent {

constexpr std::chrono::seconds kHookLimit{5};  // each

// Runs the executable files in `root`/etc/space/restore.d as root, one after the other in the order
// of their names; names that begin with '.' or end with '~' are passed over. Their output goes to
// the agent's log. What a hook leaves running becomes the user's; a hook that fails or takes too
// long is killed with all that it started. Without hooks no process is made.
//   errors: name the hook, with its status or the end of its output
asio::awaitable<Result<void>> RunHooks(ProcessTable& table, Freezer& freezer, std::string root);

}  // namespace space::agent
