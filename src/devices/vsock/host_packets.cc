// What the guest receives: resets, control packets and data, each into one buffer of the guest.
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "devices/vsock/vsock_device.h"

namespace space {

using vsock::ConnectionState;

namespace {

constexpr size_t kReceiveQueue = 0;

}  // namespace

// Sends as long as there is something to send and a buffer for it, at most one queue full.
Result<void> VsockDevice::ServeReceive() {
  if (queues_.empty() || !HasForGuest()) {
    return {};
  }
  Queue& queue = queues_[kReceiveQueue];
  if (!queue.is_enabled()) {
    return {};
  }
  std::optional<Chain> chain;
  uint16_t sent = 0;
  while (HasForGuest() && sent < queue.layout().size) {
    if (!chain.has_value()) {
      SPACE_TRY(chain, queue.Pop(), "take vsock buffer");
    }
    if (!chain.has_value()) {
      SPACE_TRY(const bool has_late, queue.EnableNotifications(), "wait for vsock buffers");
      if (!has_late) {
        break;
      }
      continue;
    }
    SPACE_TRY(const bool is_used, SendOne(*chain), "send to guest");
    if (is_used) {
      chain.reset();
      ++sent;
    }
  }
  if (chain.has_value()) {
    queue.UndoPop();
  }
  if (HasForGuest() && sent == queue.layout().size) {
    StartSoon();
  }
  return sent > 0 ? SignalIfWanted(queue) : Result<void>{};
}

// Whether the buffer was used. Each stream sends one packet, then it is the next one's turn.
Result<bool> VsockDevice::SendOne(const Chain& chain) {
  if (chain.readable_bytes != 0 || chain.writable_bytes <= sizeof(PacketHeader)) {
    return Fail(ErrorCode::kGuestFault, "vsock buffer too small or not writable");
  }
  if (!resets_.empty()) {
    const ResetNotice notice = resets_.front();
    resets_.pop_front();
    PacketHeader header;
    header.operation = vsock::kReset;
    header.source_port = notice.host_port;
    header.destination_port = notice.guest_port;
    SPACE_TRY_VOID(PutPacket(chain, header, 0), "reset");
    return true;
  }
  const uint64_t token = ready_.front();
  ready_.pop_front();
  const auto found = by_token_.find(token);
  if (found == by_token_.end()) {
    return false;
  }
  found->second->is_queued = false;
  SPACE_TRY(const bool is_used, SendFrom(*found->second, chain), "send packet");
  // It may have been closed meanwhile.
  if (const auto again = by_token_.find(token); again != by_token_.end()) {
    Enqueue(*again->second);
    UpdateWatch(*again->second);
  }
  return is_used;
}

Result<bool> VsockDevice::SendFrom(Connection& connection, const Chain& chain) {
  uint32_t payload = 0;
  bool has_data = false;
  if (connection.state == ConnectionState::kOpen && connection.can_read &&
      (connection.pending & ~uint32_t{vsock::kPendingCredit}) == 0 && connection.Credit() > 0) {
    const ReadOutcome outcome = ReadInto(connection, chain, payload);
    if (outcome == ReadOutcome::kClosed) {
      return false;
    }
    has_data = payload > 0;
  }
  PacketHeader header;
  header.source_port = connection.host_port;
  header.destination_port = connection.guest_port;
  if (has_data) {
    header.operation = vsock::kData;
    connection.sent_bytes += payload;
    if (connection.host_gone) {
      SetDeadline(connection, kCloseTimeout);  // it reads: more time
    }
  } else if ((connection.pending & vsock::kPendingRequest) != 0) {
    header.operation = vsock::kRequest;
    connection.pending &= ~vsock::kPendingRequest;
  } else if ((connection.pending & vsock::kPendingResponse) != 0) {
    header.operation = vsock::kResponse;
    connection.pending &= ~vsock::kPendingResponse;
  } else if ((connection.pending & vsock::kPendingShutdown) != 0) {
    header.operation = vsock::kShutdown;
    header.flags = connection.shutdown_flags;
    connection.pending &= ~vsock::kPendingShutdown;
  } else if ((connection.pending & vsock::kPendingCredit) != 0) {
    header.operation = vsock::kCreditUpdate;
  } else {
    return false;
  }
  // Every packet tells how much was forwarded.
  connection.pending &= ~vsock::kPendingCredit;
  connection.announced_forwarded = connection.forwarded_bytes;
  header.forwarded_bytes = connection.forwarded_bytes;
  header.buffer_bytes = vsock::kBufferBytes;
  SPACE_TRY_VOID(PutPacket(chain, header, payload), "send packet");
  return true;
}

// Reads from the socket right into the guest's buffer, behind the header.
VsockDevice::ReadOutcome VsockDevice::ReadInto(Connection& connection, const Chain& chain,
                                               uint32_t& payload) {
  std::array<iovec, 64> vector;
  size_t count = 0;
  size_t skip = sizeof(PacketHeader);
  size_t room = std::min(connection.Credit(), vsock::kMaxPayload);
  size_t asked = 0;
  for (const std::span<std::byte>& part : chain.writable) {
    const auto rest = part.subspan(std::min(skip, part.size()));
    skip -= part.size() - rest.size();
    const size_t length = std::min(rest.size(), room - asked);
    if (length > 0 && count < vector.size()) {
      vector[count++] = {rest.data(), length};
      asked += length;
    }
  }
  msghdr message{};
  message.msg_iov = vector.data();
  message.msg_iovlen = count;
  const ssize_t got = ::recvmsg(connection.socket.get(), &message, MSG_DONTWAIT);
  if (got > 0) {
    payload = static_cast<uint32_t>(got);
    // Less than asked: most likely that was all. Once its peer is gone nobody tells us again.
    connection.can_read = connection.host_gone || payload == asked;
    return ReadOutcome::kOpen;
  }
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    connection.can_read = false;
    connection.host_gone = false;  // not so, it seems; the poller will say it again
    return ReadOutcome::kOpen;
  }
  if (got < 0) {
    Close(connection, true, "host end of the stream is gone");
    return ReadOutcome::kClosed;
  }
  OnHostEnd(connection);
  return ReadOutcome::kOpen;
}

Result<void> VsockDevice::PutPacket(const Chain& chain, PacketHeader header, uint32_t payload) {
  header.source_cid = kHostCid;
  header.destination_cid = config_.guest_cid;
  header.type = vsock::kStream;
  header.length = payload;
  CopyTo(chain.writable, 0, std::as_bytes(std::span(&header, 1)));
  return queues_[kReceiveQueue].Push(chain.head, static_cast<uint32_t>(sizeof(header)) + payload);
}

Result<void> VsockDevice::SignalIfWanted(Queue& queue) {
  SPACE_TRY(const bool is_wanted, queue.ShouldInterrupt(), "signal guest");
  if (is_wanted) {
    line_->SignalUsed();
  }
  return {};
}

}  // namespace space
