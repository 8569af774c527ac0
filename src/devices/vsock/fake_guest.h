// A guest's vsock driver for tests and fuzz harnesses: rings in plain memory, packets by hand.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/seqpacket.h"
#include "base/units.h"
#include "devices/vsock/vsock_device.h"
#include "virtio/fake_driver.h"

namespace space {

class FakeVsockGuest {
 public:
  struct Packet {
    vsock::PacketHeader header;
    std::string payload;
  };

  static constexpr uint16_t kRingSize = 64;
  static constexpr uint32_t kBufferBytes = 4096 + sizeof(vsock::PacketHeader);
  static constexpr uint64_t kReceiveArea = 0x100000;
  static constexpr uint64_t kTransmitArea = 0x400000;

  FakeVsockGuest() {
    VsockConfig config;
    config.on_hello = [this](std::string hello) { hellos.push_back(std::move(hello)); };
    config.clock = [this] { return now; };
    device = std::move(*VsockDevice::Create(std::move(config), poller));
  }
  void BringUp() {
    for (FakeDriver* driver : {&receive, &transmit, &event}) {
      queues.push_back(*Queue::Create(memory, driver->layout(), false));
    }
    static_cast<void>(device->Activate(queues, 0, line));
  }
  // Gives the device up to `count` more receive buffers; the ring holds kRingSize.
  void AddBuffers(int count) {
    for (; count > 0 && buffers_out_ < kRingSize; --count, ++buffers_out_) {
      receive.Add({{kReceiveArea + uint64_t{next_buffer_} * 8192, kBufferBytes, true}});
      next_buffer_ = (next_buffer_ + 1) % kRingSize;
    }
    static_cast<void>(device->OnQueueReady(0));
  }
  // What the device sent since, each buffer given back at once.
  std::vector<Packet> TakePackets() {
    std::vector<Packet> packets;
    while (const auto used = receive.TakeUsed()) {
      --buffers_out_;
      const uint64_t at = receive.Get<uint64_t>(uint64_t{used->head} * 16);  // ring at 0
      Packet packet{receive.Get<vsock::PacketHeader>(at), ""};
      packet.payload = receive.GetText(at + sizeof(packet.header), packet.header.length);
      packets.push_back(std::move(packet));
    }
    return packets;
  }
  vsock::PacketHeader Header(const vsock::PacketHeader& answered, uint16_t operation) const {
    vsock::PacketHeader header;
    header.source_cid = 3;
    header.destination_cid = 2;
    header.source_port = answered.destination_port;
    header.destination_port = answered.source_port;
    header.type = vsock::kStream;
    header.operation = operation;
    header.buffer_bytes = 256 << 10;
    return header;
  }
  Result<bool> Send(const vsock::PacketHeader& header, std::string_view payload = "") {
    transmit.Put(kTransmitArea, header);
    std::vector<FakeDriver::Part> parts{{kTransmitArea, sizeof(header), false}};
    if (!payload.empty()) {
      transmit.PutText(kTransmitArea + 4096, payload);
      parts.push_back({kTransmitArea + 4096, static_cast<uint32_t>(payload.size()), false});
    }
    transmit.Add(parts);
    return device->OnQueueReady(1);
  }
  // Plays every event that the kernel would report for the watched sockets, until none is left;
  // false when there is no end of them.
  bool Poll() {
    for (int round = 0; round < 1000; ++round) {
      bool is_quiet = true;
      for (const FakePoller::Entry& entry : std::vector(poller.entries)) {
        // poll(2) uses the values of epoll(7) for these events.
        pollfd poll{entry.fd, static_cast<short>(entry.events), 0};
        if (entry.token != VsockDevice::kTimerToken && ::poll(&poll, 1, 0) == 1) {
          is_quiet = false;
          static_cast<void>(device->OnHostReady(entry.token, static_cast<uint32_t>(poll.revents)));
        }
      }
      if (is_quiet) {
        return true;
      }
    }
    return false;
  }

  GuestMemory memory = *GuestMemory::Create(MiB(8));
  FakeDriver receive{memory, 0, kRingSize};
  FakeDriver transmit{memory, 0x4000, kRingSize};
  FakeDriver event{memory, 0x8000, kRingSize};
  FakeInterruptLine line;
  FakePoller poller;
  std::chrono::steady_clock::time_point now{};
  std::vector<std::string> hellos;
  std::vector<Queue> queues;
  std::unique_ptr<VsockDevice> device;

 private:
  uint32_t next_buffer_ = 0;
  int buffers_out_ = 0;
};

}  // namespace space
