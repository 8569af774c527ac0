// POST /init: what the host tells the agent after every start and resume (E2B.md 3.5).
#pragma once

#include <string_view>

#include "agent/settings.h"
#include "base/result.h"

namespace space::agent {

// `body` is JSON, empty counts as {}. Fields that are absent leave the setting as it is; envVars
// replaces the variables as a whole. In a guest the clock is set to `timestamp` and the sandbox's
// ids are written to /run/e2b and /.e2b.
//   errors: kInvalidArgument for bad JSON
Result<void> ApplyInit(std::string_view body, Settings& settings);

}  // namespace space::agent
