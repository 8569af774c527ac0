// The agent's first word to the host after a boot (wire/hello.h).
#pragma once

#include "base/result.h"

namespace space::agent {

constexpr const char* kAgentVersion = "0.1.0";

// Connects to the host, says hello, closes. Blocks for at most a few seconds.
Result<void> SayHello();

}  // namespace space::agent
