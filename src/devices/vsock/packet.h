// The header before every virtio-vsock packet (virtio 1.2, 5.10.6).
#pragma once

#include <cstddef>
#include <cstdint>

namespace space::vsock {

struct [[gnu::packed]] PacketHeader {
  uint64_t source_cid = 0;
  uint64_t destination_cid = 0;
  uint32_t source_port = 0;
  uint32_t destination_port = 0;
  uint32_t length = 0;  // of the payload behind the header
  uint16_t type = 0;
  uint16_t operation = 0;
  uint32_t flags = 0;
  uint32_t buffer_bytes = 0;     // the sender's receive buffer
  uint32_t forwarded_bytes = 0;  // what it has taken out of it so far, modulo 2^32
};
static_assert(sizeof(PacketHeader) == 44);
static_assert(offsetof(PacketHeader, length) == 24);
static_assert(offsetof(PacketHeader, forwarded_bytes) == 40);

enum Operation : uint16_t {
  kRequest = 1,
  kResponse = 2,
  kReset = 3,
  kShutdown = 4,
  kData = 5,
  kCreditUpdate = 6,
  kCreditRequest = 7,
};

constexpr uint16_t kStream = 1;
constexpr uint32_t kShutdownReceive = 1;  // the sender will receive no more
constexpr uint32_t kShutdownSend = 2;     // the sender will send no more
constexpr uint32_t kShutdownBoth = kShutdownReceive | kShutdownSend;
constexpr uint32_t kMaxPayload = 64 << 10;

}  // namespace space::vsock
