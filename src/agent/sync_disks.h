// Writing out what the page cache holds for disks.
#pragma once

#include "base/result.h"

namespace space::agent {

// As sync(2), but only file systems on block devices: one that a program serves (FUSE) would wait
// for that program, which may be frozen. Innermost mounts first, since loop devices write to those
// below. Blocks; any thread.
Result<void> SyncDisks();

}  // namespace space::agent
