// The emulated host's own agent, reached over its channels.
#pragma once

#include <memory>

#include "cli/envd.h"
#include "machine/settings.h"

namespace space::cli {

std::shared_ptr<EnvdTarget> MakeMachineTarget(const machine::Settings& settings);

}  // namespace space::cli
