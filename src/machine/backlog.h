// QEMU's user network listens for forwarded connections with a queue of one (libslirp's
// tcpx_listen): of twenty clients that connect at once most wait for seconds, and some are reset.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "base/result.h"

namespace space::machine {

// Lets the socket by which `process` listens at the TCP port take many. Needs ptrace's rights
// (pidfd_getfd(2)), which a parent has.
//   errors: kNotFound when it does not listen there, kIo
Result<void> RaiseBacklog(pid_t process, uint16_t port);

}  // namespace space::machine
