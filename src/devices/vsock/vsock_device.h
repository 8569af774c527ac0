// virtio-vsock (virtio 1.2, 5.10). The host side of a stream is one end of a unix stream socket
// pair. Streams are opened by the host; the guest may only open one to the hello port, say what it
// has to say and be reset. Everything is bounded: 64 KiB per stream and direction, kMaxConnections
// streams. Calls as for every device; Connect through MmioTransport::WithLock. Callbacks come under
// the device's lock, from the device thread or (reset) a vCPU thread: they hand over and call
// nothing of the device.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/fd.h"
#include "devices/vsock/connection.h"
#include "virtio/device.h"

namespace space {

struct VsockConfig {
  uint64_t guest_cid = 3;
  uint32_t hello_port = 1024;
  // The last kReserved streams are for this guest port: however many clients hold theirs, the
  // daemon reaches its agent.
  uint32_t control_port = 1026;
  // What the guest sent to the hello port until it shut down, at most kMaxHelloBytes; not looked
  // at.
  std::function<void(std::string)> on_hello;
  std::function<std::chrono::steady_clock::time_point()> clock = std::chrono::steady_clock::now;
};

class VsockDevice final : public VirtioDevice {
 public:
  static constexpr uint64_t kHostCid = 2;
  static constexpr size_t kMaxConnections = 1023;
  static constexpr size_t kReserved = 15;
  static constexpr size_t kMaxHellos = 4;  // at once; a further one replaces the oldest
  static constexpr size_t kMaxHelloBytes = 1024;
  static constexpr size_t kMaxResets = 256;  // waiting for receive buffers
  static constexpr uint32_t kFirstHostPort = 0x40000000;
  static constexpr std::chrono::milliseconds kConnectTimeout{2000};
  // How long a stream whose host end is gone may stay with a guest that does not answer or read.
  static constexpr std::chrono::milliseconds kCloseTimeout{8000};
  static constexpr uint64_t kTimerToken = 0;

  static Result<std::unique_ptr<VsockDevice>> Create(VsockConfig config, HostPoller& poller);
  VsockDevice(const VsockDevice&) = delete;
  VsockDevice& operator=(const VsockDevice&) = delete;
  ~VsockDevice() override;

  // Opens a stream to `guest_port`. `on_connected` is called exactly once, maybe before this
  // returns:
  //   kUnavailable the guest refused or was reset, kTimeout no answer in kConnectTimeout (also when
  //   the guest's driver is not up), kExhausted too many streams
  // The socket is closed when it failed. The result itself is kGuestFault at most: the ring was
  // found broken, which WithLock judges; `on_connected` still comes.
  Result<void> Connect(uint32_t guest_port, UniqueFd stream,
                       std::function<void(Result<void>)> on_connected);

  std::string_view name() const override { return "vsock"; }
  DeviceType type() const override { return DeviceType::kVsock; }
  uint64_t features() const override { return 1; }  // VIRTIO_VSOCK_F_STREAM
  std::span<const uint16_t> queue_sizes() const override;
  std::span<const std::byte> config() const override { return guest_cid_; }
  Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                        InterruptLine& line) override;
  Result<bool> OnQueueReady(size_t queue_index) override;
  Result<void> OnHostReady(uint64_t token, uint32_t events) override;
  void Reset() override;
  // Streams do not survive: after Restore the guest gets a RST for each that it knew when saved,
  // and for whatever it sends of them; new ones work at once. No transport reset event: it would
  // end those, too.
  void Save(StateWriter& out) const override;
  Result<void> Restore(StateReader& in) override;

  size_t connection_count() const { return by_token_.size(); }
  // Packets from the guest that were dropped as malformed.
  uint64_t dropped_packets() const { return dropped_packets_; }

 private:
  using Connection = vsock::Connection;
  using PacketHeader = vsock::PacketHeader;
  struct ResetNotice {
    uint32_t host_port;
    uint32_t guest_port;
  };

  VsockDevice(VsockConfig config, HostPoller& poller, UniqueFd timer);

  // vsock_device.cc: streams, host side, time.
  uint32_t TakeHostPort();
  Connection* Find(uint32_t host_port, uint32_t guest_port) const;
  Connection& Add(uint32_t host_port, uint32_t guest_port, UniqueFd socket);
  void Enqueue(Connection& connection);
  void Answer(Connection& connection, Result<void> outcome);
  // Ends a stream. `tell_guest`: sends RST. What the guest sent is still written out.
  void Close(Connection& connection, bool tell_guest, const char* why);
  void Erase(Connection& connection);
  void OnSocketEvents(Connection& connection, uint32_t events);
  void OnHostEnd(Connection& connection);
  void OnWritten(Connection& connection);
  void UpdateWatch(Connection& connection);
  void SetDeadline(Connection& connection, std::chrono::milliseconds after);
  void ArmTimer();
  void StartSoon();
  void StartTimer(std::chrono::nanoseconds after);
  void OnTimer();

  // guest_packets.cc: from the guest.
  Result<bool> Work(bool has_packets);
  Result<bool> ServeTransmit();
  Result<void> TakePacket(const Chain& chain);
  void Refuse(const PacketHeader& header, const char* why);
  void Dispatch(const PacketHeader& header, const Chain& chain);
  void OnRequest(const PacketHeader& header);
  void OnResponse(Connection& connection);
  void OnData(Connection& connection, const PacketHeader& header, const Chain& chain);
  void OnShutdown(Connection& connection, uint32_t flags);
  void QueueReset(uint32_t host_port, uint32_t guest_port);

  // host_packets.cc: to the guest.
  enum class ReadOutcome { kOpen, kClosed };
  Result<void> ServeReceive();
  Result<bool> SendOne(const Chain& chain);
  Result<bool> SendFrom(Connection& connection, const Chain& chain);
  ReadOutcome ReadInto(Connection& connection, const Chain& chain, uint32_t& payload);
  Result<void> PutPacket(const Chain& chain, PacketHeader header, uint32_t payload);
  bool HasForGuest() const { return !resets_.empty() || !ready_.empty(); }
  Result<void> SignalIfWanted(Queue& queue);

  VsockConfig config_;
  HostPoller* poller_;
  UniqueFd timer_;
  std::array<std::byte, 8> guest_cid_{};
  std::span<Queue> queues_;  // empty while the driver is not up
  InterruptLine* line_ = nullptr;

  std::unordered_map<uint64_t, std::unique_ptr<Connection>> by_token_;
  std::unordered_map<uint64_t, Connection*> by_ports_;  // host port, guest port; not kDraining
  std::deque<uint64_t> ready_;                          // tokens of those with something to send
  std::deque<uint64_t> hellos_;
  std::deque<ResetNotice> resets_;
  uint64_t next_token_ = kTimerToken + 1;
  uint32_t next_host_port_ = kFirstHostPort;
  bool is_transmit_blocked_ = false;                            // resets_ was full
  std::optional<std::chrono::steady_clock::time_point> armed_;  // when the timer goes off
  uint64_t dropped_packets_ = 0;
};

}  // namespace space
