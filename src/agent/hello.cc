#include "agent/hello.h"

#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "wire/hello.h"
#include "wire/ports.h"

namespace space::agent {

Result<void> SayHello() {
  utsname kernel{};
  uname(&kernel);
  std::string boot_id = ReadFile("/proc/sys/kernel/random/boot_id").value_or("");
  boot_id.erase(boot_id.find_last_not_of('\n') + 1);
  const std::string hello = wire::Encode({.version = wire::Hello::kVersion,
                                          .agent_version = kAgentVersion,
                                          .envd_version = std::string(wire::kEnvdVersion),
                                          .kernel_release = kernel.release,
                                          .boot_id = boot_id});

  const UniqueFd socket_fd(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket_fd.valid()) {
    return FailErrno("make a vsock socket");
  }
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(socket_fd.get(), AF_VSOCK, SO_VM_SOCKETS_CONNECT_TIMEOUT, &limit, sizeof(limit));
  sockaddr_vm host{};
  host.svm_family = AF_VSOCK;
  host.svm_cid = wire::kHostCid;
  host.svm_port = wire::kHelloPort;
  if (connect(socket_fd.get(), reinterpret_cast<const sockaddr*>(&host), sizeof(host)) < 0) {
    return FailErrno("connect to the host's hello port");
  }
  return WriteFull(socket_fd.get(), hello);
}

}  // namespace space::agent
