// virtio-rng (virtio 1.2, 5.4): the host's getrandom. At most 64 KiB per request and 1 MiB/s, so
// that a guest cannot keep the device thread in the kernel's generator.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/fd.h"
#include "virtio/device.h"

namespace space {

class RngDevice final : public VirtioDevice {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  static constexpr uint64_t kMaxRequestBytes = 64 << 10;
  static constexpr uint64_t kBytesPerSecond = 1 << 20;
  static constexpr uint64_t kTimerToken = 0;

  static Result<std::unique_ptr<RngDevice>> Create(HostPoller& poller,
                                                   Clock clock = std::chrono::steady_clock::now);
  RngDevice(const RngDevice&) = delete;
  RngDevice& operator=(const RngDevice&) = delete;
  ~RngDevice() override;

  std::string_view name() const override { return "rng"; }
  DeviceType type() const override { return DeviceType::kEntropy; }
  uint64_t features() const override { return 0; }
  std::span<const uint16_t> queue_sizes() const override;
  std::span<const std::byte> config() const override { return {}; }
  Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                        InterruptLine& line) override;
  Result<bool> OnQueueReady(size_t queue_index) override;
  Result<void> OnHostReady(uint64_t token, uint32_t events) override;
  void Reset() override;
  void Save(StateWriter& out) const override;
  Result<void> Restore(StateReader& in) override;

 private:
  RngDevice(HostPoller& poller, Clock clock, UniqueFd timer);
  Result<void> Fill();
  void Refill();

  HostPoller* poller_;
  Clock clock_;
  UniqueFd timer_;
  Queue* queue_ = nullptr;
  InterruptLine* line_ = nullptr;
  uint64_t budget_bytes_ = kMaxRequestBytes;
  std::chrono::steady_clock::time_point refilled_;
};

}  // namespace space
