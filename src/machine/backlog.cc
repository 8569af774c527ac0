#include "machine/backlog.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <string>

#include "base/fd.h"

namespace space::machine {
namespace {

constexpr int kBacklog = 4096;  // the kernel takes net.core.somaxconn when that is less

bool ListensAt(int fd, uint16_t port) {
  int is_listening = 0;
  socklen_t size = sizeof(is_listening);
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || is_listening == 0) {
    return false;
  }
  sockaddr_in address = {};
  size = sizeof(address);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
         address.sin_family == AF_INET && ntohs(address.sin_port) == port;
}

}  // namespace

Result<void> RaiseBacklog(pid_t process, uint16_t port) {
  const UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
  if (!handle.valid()) {
    return FailErrno("open process", std::to_string(process));
  }
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_getfd, handle.get(), number, 0)));
    if (fd.valid() && ListensAt(fd.get(), port)) {
      return ::listen(fd.get(), kBacklog) == 0 ? Result<void>() : FailErrno("listen");
    }
  }
  return Fail(ErrorCode::kNotFound, "process " + std::to_string(process) +
                                        " does not listen at port " + std::to_string(port));
}

}  // namespace space::machine
