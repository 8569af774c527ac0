// One vsock stream as the device sees it: a unix stream socket on the host side, credit both ways,
// and a bounded buffer for what the guest sent and the socket did not take yet. Knows no queues;
// used by VsockDevice alone, under its lock.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "devices/vsock/packet.h"

namespace space::vsock {

// What the guest may have on the way to the host per stream: our receive buffer.
constexpr uint32_t kBufferBytes = 64 << 10;

enum class ConnectionState {
  kConnecting,  // REQUEST is or will be sent, no answer yet
  kOpen,
  kHello,     // guest-initiated, on the hello port; no socket
  kDraining,  // gone for the guest; what it sent is still being written to the socket
};

// Control packets that wait for a receive buffer of the guest; sent in this order, each at most
// once.
enum Pending : uint32_t {
  kPendingRequest = 1,
  kPendingResponse = 2,
  kPendingShutdown = 4,
  kPendingCredit = 8,
};

struct Connection {
  using Time = std::chrono::steady_clock::time_point;

  uint64_t token = 0;
  uint32_t host_port = 0;
  uint32_t guest_port = 0;
  ConnectionState state = ConnectionState::kConnecting;
  UniqueFd socket;  // non-blocking
  std::function<void(Result<void>)> on_connected;
  std::optional<Time> deadline;  // then it is reset

  uint32_t pending = 0;         // Pending bits
  uint32_t shutdown_flags = 0;  // kShutdown bits of the SHUTDOWN that we sent or will send
  bool is_queued = false;       // in the device's list of those with something for the guest

  // Host to guest.
  bool can_read = false;    // the socket was reported readable and has not been emptied since
  bool host_ended = false;  // end of file read
  bool host_gone = false;   // the peer has closed both directions
  uint32_t sent_bytes = 0;  // modulo 2^32, as all counters of credit
  uint32_t guest_buffer = 0;
  uint32_t guest_forwarded = 0;

  // Guest to host.
  uint32_t guest_shutdown = 0;  // kShutdown bits that the guest sent
  uint32_t received_bytes = 0;
  uint32_t forwarded_bytes = 0;
  uint32_t announced_forwarded = 0;  // as last told to the guest
  std::vector<std::byte> backlog;
  size_t backlog_start = 0;
  std::string hello;

  std::optional<uint32_t> watched_events;  // nullopt: not with the poller

  size_t backlog_bytes() const { return backlog.size() - backlog_start; }
  // Bytes that the guest has room for. 0 also when it claims to have forwarded more than was sent.
  uint32_t Credit() const;
  void TakeCredit(const PacketHeader& header);
  // Whether `bytes` more are within what we granted.
  bool IsGranted(uint32_t bytes) const;
  // Takes one payload from the guest: to the socket at once, the rest to the backlog.
  //   errors: kUnavailable when the socket's peer is gone
  Result<void> Accept(std::span<const std::span<const std::byte>> parts, uint32_t skip,
                      uint32_t bytes);
  // Writes backlog to the socket as far as it takes it; errors as Accept.
  Result<void> WriteBacklog();
  // Whether the guest should hear how much was forwarded.
  bool IsCreditNewsDue() const { return forwarded_bytes - announced_forwarded >= kBufferBytes / 2; }
  // Whether the host's bytes are still wanted.
  bool IsReading() const { return !host_ended && (guest_shutdown & kShutdownReceive) == 0; }
  bool HasForGuest() const;
};

}  // namespace space::vsock
