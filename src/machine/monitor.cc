#include "machine/monitor.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/fd.h"

namespace space::machine {
namespace {

Result<void> ReadSome(int socket, int limit_ms) {
  std::array<char, 4096> answer;
  pollfd entry = {socket, POLLIN, 0};
  if (::poll(&entry, 1, limit_ms) <= 0) {
    return Fail(ErrorCode::kTimeout, "QEMU's monitor does not answer");
  }
  if (::recv(socket, answer.data(), answer.size(), 0) < 0) {
    return FailErrno("read QEMU's monitor");
  }
  return {};
}

}  // namespace

Result<void> QuitQemu(const std::string& monitor_socket, std::chrono::milliseconds limit) {
  const int limit_ms = static_cast<int>(limit.count());
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (monitor_socket.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "socket path is too long", monitor_socket);
  }
  std::memcpy(address.sun_path, monitor_socket.c_str(), monitor_socket.size() + 1);
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FailErrno("connect to QEMU's monitor at", monitor_socket);
  }
  SPACE_TRY_VOID(ReadSome(fd.get(), limit_ms), "greeting");
  SPACE_TRY_VOID(WriteFull(fd.get(), "{\"execute\":\"qmp_capabilities\"}\n"), "monitor");
  SPACE_TRY_VOID(ReadSome(fd.get(), limit_ms), "negotiate");
  return WriteFull(fd.get(), "{\"execute\":\"quit\"}\n");
}

}  // namespace space::machine
