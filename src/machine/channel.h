// Sessions with the emulated host over its virtio-serial ports: the host's side. A port is a unix
// socket of QEMU that serves one client at a time, so a lock file says who has it. Each session
// begins with a line and a nonce, because a port may still carry bytes of the session before it;
// the other side is relay.h. Blocking; any thread.
//
//   host -> machine   "SPACE1 OPEN <nonce>\n"    then bytes of the session
//   machine -> host   "SPACE1 OK <nonce>\n"      then bytes of the session
//                     "SPACE1 NO <nonce> <reason>\n"
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "machine/layout.h"

namespace space::machine {

enum class Verb {
  kOpen,  // connects to the machine's agent: HTTP of envd follows
  kPing,  // answers and ends
  kStop,  // answers, then stops the daemon and turns the machine off
};
std::string_view VerbName(Verb verb);

// While it lives nobody else uses the port.
struct Channel {
  UniqueFd lock;
  UniqueFd socket;  // stream; after Open with kOpen it speaks HTTP
};

// Takes a free port and does the handshake on it, going on to the next port when one does not
// answer.
//   errors: kNotFound when the machine does not run, kExhausted when all ports are busy until
//           `limit`, kTimeout when none answers, kUnavailable with the machine's own reason
Result<Channel> OpenChannel(const Layout& layout, Verb verb, std::chrono::milliseconds limit);

// The handshake on a connected stream socket, for tests.
Result<void> Handshake(int socket, Verb verb, std::chrono::milliseconds limit);

}  // namespace space::machine
