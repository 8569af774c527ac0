// A frozen layer must never shrink or change: machines have it mapped, and a page behind the end of
// its file kills them with SIGBUS. Any thread.
#pragma once

#include "base/result.h"

namespace space {

// A memfd gets its seals (no shrinking, growing, writing, further seals), also against those who
// hold it open. A file becomes mode 0400: who has it open for writing still could. Idempotent.
//   errors: kConflict when a memfd is mapped shared and writable
Result<void> SealLayer(int fd);

// Whether SealLayer was done.
bool IsSealed(int fd);

}  // namespace space
