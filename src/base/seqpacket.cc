#include "base/seqpacket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace space {
namespace {

Result<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "socket path is longer than 107 bytes", path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<UniqueFd> MakeSocket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return FailErrno("make socket");
  }
  return fd;
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> MakeSocketPair(int type) {
  int fds[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) {
    return FailErrno("make socket pair");
  }
  return std::pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

Result<UniqueFd> ListenSeqpacket(const std::string& path) {
  SPACE_TRY(const sockaddr_un address, UnixAddress(path), "listen");
  SPACE_TRY(UniqueFd fd, MakeSocket(), "listen");
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) {
    ::unlink(path.c_str());
  }
  // fchmod before bind sets the mode with which the name appears: no moment of wider access.
  if (::fchmod(fd.get(), 0600) != 0 ||
      ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), 4) != 0) {
    return FailErrno("listen on", path);
  }
  return fd;
}

Result<UniqueFd> ConnectSeqpacket(const std::string& path) {
  SPACE_TRY(const sockaddr_un address, UnixAddress(path), "connect");
  SPACE_TRY(UniqueFd fd, MakeSocket(), "connect");
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FailErrno("connect to", path);
  }
  return fd;
}

Result<void> SendPacket(int socket, std::string_view bytes, const std::vector<int>& fds) {
  if (bytes.empty() || bytes.size() > kMaxPacketBytes || fds.size() > kMaxPacketFds) {
    return Fail(ErrorCode::kInvalidArgument, "message is empty or too large");
  }
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPacketFds * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) {
      return {};
    }
    if (errno == EAGAIN) {
      return Fail(ErrorCode::kTimeout, "send message: the peer does not read");
    }
    if (errno != EINTR) {
      return FailErrno("send message");
    }
  }
}

Result<Packet> ReceivePacket(int socket) {
  Packet packet;
  packet.bytes.resize(kMaxPacketBytes);
  iovec part = {packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxPacketFds * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    return Fail(ErrorCode::kTimeout, "receive message: nothing to read");
  }
  if (got < 0) {
    return FailErrno("receive message");
  }
  // Take every descriptor before judging, so that none leaks.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t at = 0; at < count; ++at) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at * sizeof(int), sizeof(int));
      packet.fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "message is too large");
  }
  packet.bytes.resize(static_cast<size_t>(got));
  return packet;
}

Result<PeerCredentials> PeerOf(int socket) {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return FailErrno("read peer credentials");
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

Result<void> NameSenders(int socket) {
  const int on = 1;
  if (::setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0) {
    return FailErrno("ask for the names of senders");
  }
  return {};
}

Result<pid_t> ReceiveSender(int socket) {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = -1;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno != EAGAIN) {
    return FailErrno("receive");
  }
  if (got <= 0) {
    return Fail(got < 0 ? ErrorCode::kTimeout : ErrorCode::kUnavailable,
                got < 0 ? "nothing came" : "the other side has closed");
  }
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET ||
      header->cmsg_type != SCM_CREDENTIALS) {
    return Fail(ErrorCode::kInternal, "the sender is not named");
  }
  ucred sender = {};
  std::memcpy(&sender, CMSG_DATA(header), sizeof(sender));
  return sender.pid;
}

}  // namespace space
