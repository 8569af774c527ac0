// spaced as a whole: folders, lock, catalog, first key, node, server, signals.
#pragma once

#include "base/result.h"
#include "node/config.h"

namespace space {

// Runs until SIGTERM, SIGINT or a shutdown call. Running sandboxes go on.
//   errors: kConflict when another spaced has the folders or the address
Result<void> RunDaemon(const Config& config);

}  // namespace space
