#include "agent/pid1/network.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>

#include "base/fd.h"
#include "base/log.h"

namespace space::agent::pid1 {

void BringUpLoopback() {
  const UniqueFd any(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof(request.ifr_name) - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (!any.valid() || ioctl(any.get(), SIOCSIFFLAGS, &request) < 0) {
    log::Warn("loopback_not_up");
  }
}

}  // namespace space::agent::pid1
