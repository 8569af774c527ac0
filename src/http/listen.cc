#include <arpa/inet.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "http/server.h"

namespace space::http {
namespace {

constexpr int kBacklog = 1024;  // one SDK client opens 200 connections at once

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<UniqueFd> MakeSocket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return FailErrno("make socket");
  }
  return fd;
}

Result<UniqueFd> BindAndListen(UniqueFd fd, const Address& address, const std::string& name) {
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    return FailErrno("listen on", name);
  }
  if (::listen(fd.get(), kBacklog) != 0) {
    return FailErrno("listen on", name);
  }
  return fd;
}

Result<Address> ParseTcpAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string host = text.substr(0, colon);
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  if (colon == std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "address is not HOST:PORT", text);
  }
  const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, port);
  if (error != std::errc() || stop != end) {
    return Fail(ErrorCode::kInvalidArgument, "port is not a number up to 65535", text);
  }
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (::inet_pton(AF_INET, host == "localhost" ? "127.0.0.1" : host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof(*v4);
    return address;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']' &&
      ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof(*v6);
    return address;
  }
  return Fail(ErrorCode::kInvalidArgument, "address is not HOST:PORT with a literal host", text);
}

// A socket file that nobody serves any more, left by a process that was killed.
bool IsStale(const Address& address, const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) {
    return false;
  }
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return probe.valid() &&
         ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                   address.size) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

Result<UniqueFd> ListenTcp(const std::string& address_text) {
  SPACE_TRY(const Address address, ParseTcpAddress(address_text), "listen");
  SPACE_TRY(UniqueFd fd, MakeSocket(address.storage.ss_family), "listen");
  const int on = 1;
  if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
    return FailErrno("listen on", address_text);
  }
  return BindAndListen(std::move(fd), address, address_text);
}

Result<UniqueFd> ListenUnix(const std::string& path, unsigned mode) {
  Address address;
  auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.empty() || path.size() >= sizeof(local->sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "path of unix socket is too long", path);
  }
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path, path.data(), path.size());
  address.size = sizeof(*local);
  SPACE_TRY(UniqueFd fd, MakeSocket(AF_UNIX), "listen");
  if (IsStale(address, path)) {
    ::unlink(path.c_str());
  }
  // On the socket first: the file is never more open than asked for, not even for a moment.
  if (::fchmod(fd.get(), mode) != 0) {
    return FailErrno("set mode of", path);
  }
  SPACE_TRY(UniqueFd bound, BindAndListen(std::move(fd), address, path), "listen");
  if (::chmod(path.c_str(), mode) != 0) {
    return FailErrno("set mode of", path);
  }
  return bound;
}

Result<UniqueFd> ListenVsock(uint32_t port) {
  Address address;
  auto* local = reinterpret_cast<sockaddr_vm*>(&address.storage);
  local->svm_family = AF_VSOCK;
  local->svm_cid = VMADDR_CID_ANY;
  local->svm_port = port;
  address.size = sizeof(*local);
  SPACE_TRY(UniqueFd fd, MakeSocket(AF_VSOCK), "listen");
  return BindAndListen(std::move(fd), address, "vsock port " + std::to_string(port));
}

}  // namespace space::http
