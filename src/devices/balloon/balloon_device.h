// virtio-balloon (virtio 1.2, 5.5) for free page reporting alone (5.5.6.7): memory that the guest
// frees goes back to the host. The balloon itself stays empty: num_pages and actual are always 0.
//
// A report is a chain of writable buffers, each free guest memory. What of them are whole pages is
// dropped by MADV_DONTNEED, and the guest gets a page again when it next touches it: zeros where
// memory is anonymous, the layer's bytes where a layer is mapped. These may be older than what the
// guest last wrote. That is allowed, since a driver without VIRTIO_BALLOON_F_PAGE_POISON, which is
// not offered, treats reported pages as uninitialized; and a snapshot sees the same as the guest,
// since a dropped page is not dirty (memory/page_scan.h) and thus the layers' again. So nothing
// needs to note that it was dropped.
//
// Only the device thread and vCPU threads call in, so nothing is dropped while a snapshot scans and
// forks: vCPUs are parked then and the device thread is what takes the snapshot. The forked child
// has mappings of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "virtio/device.h"

namespace space {

class BalloonDevice final : public VirtioDevice {
 public:
  // Linux 6.1 reports at most 32 blocks of at most 4 MiB at once. Also about what one call drops,
  // or a guest could keep the device thread in the kernel with reports of all memory.
  static constexpr uint64_t kMaxReportBytes = 128 << 20;
  // Without statistics and hints Linux numbers its queues like this (virtio 1.2, 5.5.2 leaves gaps
  // that no driver has).
  static constexpr size_t kInflateQueue = 0;
  static constexpr size_t kDeflateQueue = 1;
  static constexpr size_t kReportingQueue = 2;
  static constexpr uint64_t kReporting = 1 << 5;  // VIRTIO_BALLOON_F_PAGE_REPORTING

  std::string_view name() const override { return "balloon"; }
  DeviceType type() const override { return DeviceType::kBalloon; }
  uint64_t features() const override { return kReporting; }
  std::span<const uint16_t> queue_sizes() const override;
  std::span<const std::byte> config() const override { return config_; }
  Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                        InterruptLine& line) override;
  Result<bool> OnQueueReady(size_t queue_index) override;
  Result<void> OnHostReady(uint64_t token, uint32_t events) override;
  void Reset() override;
  void Save(StateWriter& out) const override;
  Result<void> Restore(StateReader& in) override;

 private:
  // Serves one chain; how much was dropped.
  Result<uint64_t> Take(size_t queue_index, const Chain& chain) const;

  std::span<Queue> queues_;  // empty until Activate
  InterruptLine* line_ = nullptr;
  // num_pages u32, actual u32 (virtio 1.2, 5.5.4).
  const std::array<std::byte, 8> config_{};
};

}  // namespace space
