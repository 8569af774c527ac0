// What the guest sends. Every field of a packet is its choice.
#include <sys/socket.h>

#include <utility>

#include "devices/vsock/vsock_device.h"

namespace space {

using vsock::ConnectionState;

namespace {

constexpr size_t kTransmitQueue = 1;

}  // namespace

Result<bool> VsockDevice::OnQueueReady(size_t queue_index) {
  if (queues_.empty()) {
    return false;
  }
  return Work(queue_index == kTransmitQueue);
}

// True when there is more to do at once.
Result<bool> VsockDevice::Work(bool has_packets) {
  bool has_more = false;
  if (has_packets || is_transmit_blocked_) {
    SPACE_TRY(has_more, ServeTransmit(), "serve vsock transmit queue");
  }
  SPACE_TRY_VOID(ServeReceive(), "serve vsock receive queue");
  // Sending resets may have made room for the packets that wait.
  return has_more || (is_transmit_blocked_ && resets_.size() < kMaxResets);
}

// True when it stopped at its limit for one call.
Result<bool> VsockDevice::ServeTransmit() {
  Queue& queue = queues_[kTransmitQueue];
  is_transmit_blocked_ = false;
  bool has_more = true;
  for (uint16_t served = 0; served < queue.layout().size; ++served) {
    if (resets_.size() >= kMaxResets) {
      is_transmit_blocked_ = true;
      has_more = false;
      break;
    }
    SPACE_TRY(const std::optional<Chain> chain, queue.Pop(), "take vsock packet");
    if (!chain.has_value()) {
      SPACE_TRY(has_more, queue.EnableNotifications(), "wait for vsock packets");
      if (!has_more) {
        break;
      }
      continue;
    }
    SPACE_TRY_VOID(TakePacket(*chain), "take vsock packet");
    SPACE_TRY_VOID(queue.Push(chain->head, 0), "return vsock packet");
  }
  SPACE_TRY_VOID(SignalIfWanted(queue), "return vsock packets");
  return has_more && queue.is_enabled();
}

Result<void> VsockDevice::TakePacket(const Chain& chain) {
  PacketHeader header;
  if (chain.writable_bytes != 0 ||
      CopyFrom(chain.readable, 0, std::as_writable_bytes(std::span(&header, 1))) !=
          sizeof(header)) {
    return Fail(ErrorCode::kGuestFault, "vsock packet without a header");
  }
  if (header.source_cid != config_.guest_cid || header.destination_cid != kHostCid) {
    ++dropped_packets_;  // of nobody's here, so there is nobody to reset
    return {};
  }
  const bool is_whole =
      header.length <= vsock::kMaxPayload && header.length <= chain.readable_bytes - sizeof(header);
  if (header.type != vsock::kStream || !is_whole) {
    ++dropped_packets_;
    Refuse(header, "guest sent a malformed packet");
    return {};
  }
  Dispatch(header, chain);
  return {};
}

// Ends the stream that the packet names; a packet of no stream is answered by RST, but never a RST.
void VsockDevice::Refuse(const PacketHeader& header, const char* why) {
  Connection* connection = Find(header.destination_port, header.source_port);
  if (connection != nullptr) {
    Close(*connection, true, why);
  } else if (header.operation != vsock::kReset) {
    QueueReset(header.destination_port, header.source_port);
  }
}

void VsockDevice::Dispatch(const PacketHeader& header, const Chain& chain) {
  Connection* connection = Find(header.destination_port, header.source_port);
  if (connection == nullptr) {
    return header.operation == vsock::kRequest ? OnRequest(header)
                                               : Refuse(header, "unknown stream");
  }
  connection->TakeCredit(header);
  Enqueue(*connection);
  switch (header.operation) {
    case vsock::kResponse:
      return OnResponse(*connection);
    case vsock::kReset:
      return Close(*connection, false, "guest refused or reset the stream");
    case vsock::kShutdown:
      return OnShutdown(*connection, header.flags);
    case vsock::kData:
      return OnData(*connection, header, chain);
    case vsock::kCreditUpdate:
      return;
    case vsock::kCreditRequest:
      connection->pending |= vsock::kPendingCredit;
      return Enqueue(*connection);
    default:  // also REQUEST for a stream that exists
      return Close(*connection, true, "guest broke the vsock protocol");
  }
}

void VsockDevice::OnRequest(const PacketHeader& header) {
  if (header.destination_port != config_.hello_port) {
    return QueueReset(header.destination_port, header.source_port);
  }
  if (hellos_.size() >= kMaxHellos) {
    Close(*by_token_.at(hellos_.front()), true, "replaced by a later hello");
  }
  if (by_token_.size() >= kMaxConnections - kReserved) {
    return QueueReset(header.destination_port, header.source_port);
  }
  Connection& connection = Add(header.destination_port, header.source_port, UniqueFd());
  connection.state = ConnectionState::kHello;
  connection.pending = vsock::kPendingResponse;
  connection.TakeCredit(header);
  hellos_.push_back(connection.token);
  Enqueue(connection);
}

void VsockDevice::OnResponse(Connection& connection) {
  if (connection.state != ConnectionState::kConnecting ||
      (connection.pending & vsock::kPendingRequest) != 0) {
    return Close(connection, true, "guest broke the vsock protocol");
  }
  connection.state = ConnectionState::kOpen;
  connection.deadline.reset();
  UpdateWatch(connection);
  Answer(connection, {});
}

void VsockDevice::OnData(Connection& connection, const PacketHeader& header, const Chain& chain) {
  if ((connection.guest_shutdown & vsock::kShutdownSend) != 0) {
    return Close(connection, true, "guest sent data after shutdown");
  }
  if (connection.state == ConnectionState::kHello) {
    std::string text(header.length, '\0');
    CopyFrom(chain.readable, sizeof(header), std::as_writable_bytes(std::span(text)));
    connection.hello += text;
    connection.received_bytes += header.length;
    connection.forwarded_bytes = connection.received_bytes;
    if (connection.hello.size() > kMaxHelloBytes) {
      Close(connection, true, "hello is too long");
    }
    return;
  }
  if (connection.state != ConnectionState::kOpen || !connection.IsGranted(header.length)) {
    return Close(connection, true, "guest sent data without credit");
  }
  if (!connection.Accept(chain.readable, sizeof(header), header.length).has_value()) {
    connection.backlog = {};
    connection.backlog_start = 0;
    return Close(connection, true, "host end of the stream is gone");
  }
  OnWritten(connection);
  Enqueue(connection);
  UpdateWatch(connection);
}

void VsockDevice::OnShutdown(Connection& connection, uint32_t flags) {
  connection.guest_shutdown |= flags & vsock::kShutdownBoth;
  if (connection.state == ConnectionState::kHello) {
    if ((connection.guest_shutdown & vsock::kShutdownSend) != 0) {
      std::string hello = std::move(connection.hello);
      Close(connection, true, "hello is complete");
      if (config_.on_hello) {
        config_.on_hello(std::move(hello));
      }
    }
    return;
  }
  if (connection.state != ConnectionState::kOpen) {
    return Close(connection, true, "guest broke the vsock protocol");
  }
  if (connection.guest_shutdown == vsock::kShutdownBoth) {
    return Close(connection, true, "guest closed the stream");
  }
  if ((connection.guest_shutdown & vsock::kShutdownReceive) != 0) {
    connection.can_read = false;
    ::shutdown(connection.socket.get(), SHUT_RD);
  } else {
    OnWritten(connection);  // passes the end on, once all before it is written
  }
  UpdateWatch(connection);
}

void VsockDevice::QueueReset(uint32_t host_port, uint32_t guest_port) {
  resets_.push_back({.host_port = host_port, .guest_port = guest_port});
}

}  // namespace space
