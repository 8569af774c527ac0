// What of the guest the agent changes at the host's word, besides the processes it starts. One per
// agent; agent's main thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/freezer.h"
#include "agent/identity.h"
#include "agent/kernel_state.h"

namespace space::agent {

struct Guest {
  Freezer freezer;
  std::unique_ptr<KernelState> kernel;
  // Folder that the guest's files are below: "" in a guest; nullopt: none of them is touched.
  std::optional<std::string> root;
  std::optional<Generation> generation;
  bool has_disks = false;  // to be synced when frozen

  // Of PID 1. What cannot be had is logged here and missed by the request that needs it.
  static Guest OfThisMachine(const asio::any_io_executor& executor);
  // Elsewhere: no clock, no random pool, no disks. `root` and `cgroup` are for tests; "": none.
  static Result<Guest> None(const asio::any_io_executor& executor, const std::string& root,
                            const std::string& cgroup);
};

}  // namespace space::agent
