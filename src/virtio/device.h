// What a virtio device is to the machine. Calls never overlap: the transport holds this device's
// lock. Order: Activate once the driver has set DRIVER_OK, then OnQueueReady and OnHostReady any
// number of times, Reset back to the start. OnHostReady may also come before Activate (a timer of
// the device's own) and late, with a token whose descriptor is gone: tokens are never used twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "virtio/queue.h"

namespace space {

class StateReader;
class StateWriter;

// Virtio 1.2, section 5.
enum class DeviceType : uint32_t { kNet = 1, kBlock = 2, kEntropy = 4, kBalloon = 5, kVsock = 19 };

// Raises the device's interrupt (used-buffer or configuration change). Any thread.
class InterruptLine {
 public:
  virtual ~InterruptLine() = default;
  virtual void SignalUsed() = 0;
  virtual void SignalConfig() = 0;
};

// Host descriptors that a device waits for. The machine's device thread polls them (epoll, level
// triggered) and calls the transport's OnHostReady. Each device has a poller of its own, so tokens
// are the device's. Called under the device's lock from the device thread or a vCPU thread (reset).
class HostPoller {
 public:
  virtual ~HostPoller() = default;
  // `events`: EPOLLIN, EPOLLOUT or 0; EPOLLHUP and EPOLLERR are reported in any case, as by
  // epoll(7). Watching again changes events and token.
  virtual Result<void> Watch(int fd, uint32_t events, uint64_t token) = 0;
  // Before the descriptor is closed. Nothing happens when it is not watched.
  virtual void Unwatch(int fd) = 0;
};

class VirtioDevice {
 public:
  virtual ~VirtioDevice() = default;
  virtual std::string_view name() const = 0;  // folder, config key, log tag, snapshot section
  virtual DeviceType type() const = 0;
  virtual uint64_t features()
      const = 0;  // without VIRTIO_F_VERSION_1 and EVENT_IDX: the transport's
  virtual std::span<const uint16_t> queue_sizes() const = 0;
  virtual std::span<const std::byte> config() const = 0;  // read-only for the driver

  // Queues are valid and owned by the transport until Reset; one that the driver left unconfigured
  // is not enabled and stays empty. A kGuestFault from here or from the two calls below sets
  // DEVICE_NEEDS_RESET and stops the device, never the process.
  virtual Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                                InterruptLine& line) = 0;
  // The driver added buffers. True: the device stopped at its limit for one call and there is more
  // to do, so call again after others had their turn.
  virtual Result<bool> OnQueueReady(size_t queue_index) = 0;
  virtual Result<void> OnHostReady(uint64_t token, uint32_t events) = 0;
  virtual void Reset() = 0;
  virtual void Save(StateWriter& out) const = 0;
  virtual Result<void> Restore(StateReader& in) = 0;
};

}  // namespace space
