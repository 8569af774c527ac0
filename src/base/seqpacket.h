// Messages with descriptors over unix sockets (SOCK_SEQPACKET). One message is one packet.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace space {

// Largest message, without descriptors; what a peer sends beyond is refused, not truncated.
constexpr size_t kMaxPacketBytes = 64 * 1024;
// Linux's SCM_MAX_FD.
constexpr size_t kMaxPacketFds = 253;

struct Packet {
  std::string bytes;  // empty: the peer closed
  std::vector<UniqueFd> fds;
};

Result<std::pair<UniqueFd, UniqueFd>> MakeSocketPair(int type);  // SOCK_SEQPACKET or SOCK_STREAM
// Listening SEQPACKET socket at `path` (removed first if it is a socket), mode 0600.
Result<UniqueFd> ListenSeqpacket(const std::string& path);
Result<UniqueFd> ConnectSeqpacket(const std::string& path);

// Blocking on a blocking socket; kUnavailable when the peer is gone, kTimeout (EAGAIN) on a
// non-blocking one that is full or empty.
Result<void> SendPacket(int socket, std::string_view bytes, const std::vector<int>& fds = {});
Result<Packet> ReceivePacket(int socket);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
};
Result<PeerCredentials> PeerOf(int socket);

// Whoever sends from now on is named by the kernel.
Result<void> NameSenders(int socket);
// One byte, and the process that sent it, as numbered here. On a socket of NameSenders; never
// waits: kTimeout when nothing is there, kUnavailable when the other side has closed.
Result<pid_t> ReceiveSender(int socket);

}  // namespace space
