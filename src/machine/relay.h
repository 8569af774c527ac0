// The machine's side of the channels (channel.h): `space machine-relay`, started by the machine's
// start script. One thread per virtio-serial port joins it to the agent's unix socket, one session
// after the other.
#pragma once

#include <string>

#include "base/result.h"

namespace space::machine {

struct RelayOptions {
  std::string agent_socket = "/run/space-agent.sock";
  std::string stop_program = "/opt/space/machine-stop";
};

// Runs for ever; returns only when there is no port at all.
Result<void> RunRelay(const RelayOptions& options);

// Serves the sessions of one port device until it cannot be opened any more.
void ServePort(const std::string& device, const RelayOptions& options);

// What the host's first line asks for; kInvalidArgument for anything else.
struct SessionRequest {
  std::string verb;
  std::string nonce;
};
Result<SessionRequest> ParseSessionRequest(const std::string& line);

}  // namespace space::machine
