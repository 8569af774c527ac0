// The agent as a running program: envd on its listeners, until it is told to stop.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/settings.h"
#include "base/fd.h"

namespace space::agent {

struct ServeOptions {
  std::vector<std::string> listen;  // "unix:/path", "tcp:127.0.0.1:49983"
  Settings settings;
  std::string guest_root;  // Guest::None
  std::string cgroup;
};
// envd without the duties of PID 1, for the emulated host and for tests. Adopts orphans of its
// processes. Ends by SIGTERM or SIGINT, killing what it started.
Result<void> RunServe(ServeOptions options);

struct GuestListeners {
  UniqueFd control_vsock;
  UniqueFd envd_vsock;
  UniqueFd envd_tcp;
  UniqueFd forward_vsock;
};
Result<GuestListeners> ListenInGuest();
// PID 1 after booting. Calls `power_off` when the guest is to end, with the host's connections
// still open: they end together with the machine, so that no stream seems to end by itself.
void RunGuest(GuestListeners listeners, Settings settings, const std::function<void()>& power_off);

}  // namespace space::agent
