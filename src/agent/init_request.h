// POST /init: what the host tells the agent after every start and resume (E2B.md 3.5).
#pragma once

#include "agent/guest.h"
#include "agent/proto/rest.pb.h"
#include "agent/settings.h"

namespace space::agent {

// Fields that are absent leave the setting as it is; envVars replaces the variables as a whole. In
// a guest the sandbox's ids are written to /run/e2b and /.e2b, and the clock is set to `timestamp`
// when it is far off (but not after a restore, which has done it already and better).
void ApplyInit(const rpc::rest::InitRequest& request, Settings& settings, Guest& guest);

}  // namespace space::agent
