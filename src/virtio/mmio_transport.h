// The virtio-mmio register file of one device (virtio 1.2, 4.2.2, version 2) and the device's life:
// status machine, features, queues, interrupt status. Owns the device and its one lock.
//
//   vCPU threads     Read and Write, for MMIO exits
//   device thread    OnQueueNotify for the queues' ioeventfds, OnHostReady for watched descriptors
//
// Whatever the guest writes, in any order and size, changes at most this device. A broken ring sets
// DEVICE_NEEDS_RESET and stops the device until the driver resets it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "memory/guest_memory.h"
#include "virtio/device.h"

namespace space {

class MmioTransport final : private InterruptLine {
 public:
  static constexpr uint64_t kWindowBytes = 0x1000;
  // Doorbell register: one ioeventfd per queue, 4 bytes, datamatch = queue index.
  static constexpr uint64_t kQueueNotifyOffset = 0x50;

  // `raise_irq` sends one edge (irqfd); any thread, must not call back. `memory` outlives this.
  MmioTransport(std::unique_ptr<VirtioDevice> device, const GuestMemory& memory,
                std::function<void()> raise_irq);
  MmioTransport(const MmioTransport&) = delete;
  MmioTransport& operator=(const MmioTransport&) = delete;
  ~MmioTransport() override;

  // `offset` is within the window. Unknown registers and odd sizes read as zeros, writes are
  // ignored.
  void Read(uint64_t offset, std::span<std::byte> into);
  void Write(uint64_t offset, std::span<const std::byte> from);

  // True: the device has more to do; come back after the others (write the eventfd again).
  bool OnQueueNotify(size_t queue_index);
  void OnHostReady(uint64_t token, uint32_t events);
  // After a restore: looks at every queue, since doorbells rung before the snapshot are lost, and
  // raises what the driver has not acknowledged, since that interrupt may be lost too.
  void KickAll();

  // Calls into the device from outside the transport (vsock's Connect), under the device's lock. A
  // Result<void> that the call returns is judged like the device's own.
  template <class Call>
  void WithLock(Call&& call) {
    const std::lock_guard lock(mutex_);
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      std::forward<Call>(call)();
    } else {
      Judge(std::forward<Call>(call)());
    }
  }
  VirtioDevice& device() { return *device_; }
  size_t queue_count() const { return slots_.size(); }
  // Times that the guest broke this device since the start. Any thread.
  uint64_t guest_faults() const { return guest_faults_.load(std::memory_order_relaxed); }

  // Section "mmio", then the device's own. The vCPUs and the device thread are stopped. Restore
  // goes into a fresh transport over the restored memory; call KickAll once the machine is whole.
  void Save(StateWriter& out) const;
  Result<void> Restore(StateReader& in);

 private:
  // What the driver wrote about a queue before DRIVER_OK.
  struct QueueSlot {
    uint16_t size = 0;
    bool is_ready = false;
    uint64_t descriptors = 0;
    uint64_t available = 0;
    uint64_t used = 0;
  };

  void SignalUsed() override;
  void SignalConfig() override;

  uint64_t OfferedFeatures() const;
  uint32_t ReadRegister(uint64_t offset) const;
  void ReadConfig(uint64_t offset, std::span<std::byte> into) const;
  void WriteRegister(uint64_t offset, uint32_t value);
  void WriteQueueRegister(uint64_t offset, uint32_t value);
  void WriteStatus(uint32_t value);
  Result<void> BuildQueues();
  void Activate();
  void Stop();
  void ResetAll();
  void Judge(const Result<void>& outcome);
  bool NotifyLocked(size_t queue_index);

  const std::unique_ptr<VirtioDevice> device_;
  const GuestMemory* memory_;
  const std::function<void()> raise_irq_;
  // Outside the lock: an interrupt handler must not wait for disk I/O of the same device.
  std::atomic<uint32_t> interrupt_status_ = 0;
  std::atomic<uint64_t> guest_faults_ = 0;
  std::atomic<uint32_t> config_generation_ = 0;

  std::mutex mutex_;  // guards all below, and the device
  uint32_t status_ = 0;
  bool is_active_ = false;  // Activate was called and Reset was not
  uint32_t device_features_select_ = 0;
  uint32_t driver_features_select_ = 0;
  uint64_t driver_features_ = 0;
  uint32_t queue_select_ = 0;
  std::vector<QueueSlot> slots_;
  std::vector<Queue> queues_;
};

}  // namespace space
