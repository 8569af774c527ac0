#include "devices/vsock/connection.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace space::vsock {
namespace {

// Sends without blocking; how many bytes the socket took (0: none now).
Result<size_t> Send(int socket, std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) {
      return static_cast<size_t>(sent);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return size_t{0};
    }
    if (errno != EINTR) {
      return Fail(ErrorCode::kUnavailable, "host end of the stream is gone");
    }
  }
}

}  // namespace

uint32_t Connection::Credit() const {
  const uint32_t on_the_way = sent_bytes - guest_forwarded;
  return on_the_way >= guest_buffer ? 0 : guest_buffer - on_the_way;
}

void Connection::TakeCredit(const PacketHeader& header) {
  guest_buffer = header.buffer_bytes;
  guest_forwarded = header.forwarded_bytes;
}

bool Connection::IsGranted(uint32_t bytes) const { return bytes <= kBufferBytes - backlog_bytes(); }

Result<void> Connection::Accept(std::span<const std::span<const std::byte>> parts, uint32_t skip,
                                uint32_t bytes) {
  received_bytes += bytes;
  std::array<iovec, 64> vector;
  size_t part = 0;
  bool is_full = backlog_bytes() > 0;  // order: what waits goes first
  while (bytes > 0 && part < parts.size()) {
    size_t count = 0;
    size_t offered = 0;
    for (; part < parts.size() && count < vector.size() && offered < bytes; ++part) {
      const auto rest = parts[part].subspan(std::min<size_t>(skip, parts[part].size()));
      skip -= static_cast<uint32_t>(parts[part].size() - rest.size());
      const size_t length = std::min<size_t>(rest.size(), bytes - offered);
      if (length > 0) {
        // sendmsg has no const form; it does not write through it.
        vector[count++] = {const_cast<void*>(static_cast<const void*>(rest.data())), length};
        offered += length;
      }
    }
    size_t sent = 0;
    if (!is_full) {
      SPACE_TRY(sent, Send(socket.get(), std::span(vector).first(count)), "send to stream");
      forwarded_bytes += static_cast<uint32_t>(sent);
      is_full = sent < offered;
    }
    bytes -= static_cast<uint32_t>(offered);
    for (const iovec& piece : std::span(vector).first(count)) {
      const size_t gone = std::min(sent, piece.iov_len);
      sent -= gone;
      const auto* data = static_cast<const std::byte*>(piece.iov_base);
      backlog.insert(backlog.end(), data + gone, data + piece.iov_len);
    }
  }
  return {};
}

Result<void> Connection::WriteBacklog() {
  while (backlog_bytes() > 0) {
    iovec part{backlog.data() + backlog_start, backlog_bytes()};
    SPACE_TRY(const size_t sent, Send(socket.get(), std::span(&part, 1)), "send to stream");
    if (sent == 0) {
      break;
    }
    backlog_start += sent;
    forwarded_bytes += static_cast<uint32_t>(sent);
  }
  if (backlog_bytes() == 0) {
    backlog = {};  // most streams never need it again
    backlog_start = 0;
  } else if (backlog_start >= kBufferBytes / 2) {
    backlog.erase(backlog.begin(), backlog.begin() + static_cast<ptrdiff_t>(backlog_start));
    backlog_start = 0;
  }
  return {};
}

bool Connection::HasForGuest() const {
  return pending != 0 || (state == ConnectionState::kOpen && can_read && Credit() > 0);
}

}  // namespace space::vsock
