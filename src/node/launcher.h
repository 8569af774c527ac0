// Starts the processes of sandboxes. spaced does it itself today; the jailed slots come behind this
// interface. One thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "wire/launch.h"

namespace space {

struct Launched {
  UniqueFd pidfd;
  pid_t pid = 0;
  std::string control_path;  // listening, before the process has said anything
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  // `descriptors` as wire/launch.h says. The process outlives us unless somebody ends it.
  virtual Result<Launched> Launch(const wire::LaunchRequest& request,
                                  std::vector<UniqueFd> descriptors) = 0;
  // Takes away what Launch made, after the process has ended. Fine for an id it never saw.
  virtual void Release(const std::string& sandbox_id) = 0;
  // Ids of the control sockets that exist, whoever made them.
  virtual Result<std::vector<std::string>> Existing() = 0;
  virtual std::string ControlPath(const std::string& sandbox_id) const = 0;
};

// A process by pid and start time, which no reused pid shares.
Result<int64_t> ProcessStartTicks(pid_t pid);
// A pidfd of that very process; kNotFound when it has ended.
Result<UniqueFd> OpenProcess(pid_t pid, int64_t start_ticks);

}  // namespace space
