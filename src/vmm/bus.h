// Address ranges and who answers in them: one bus for MMIO, one for ports. Built before the vCPUs
// run and not changed afterwards, so any number of vCPU threads read it without a lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace space {

// Several vCPU threads may call at once.
class BusDevice {
 public:
  virtual ~BusDevice() = default;
  // `offset` is within the device's range, and so is the whole access (1 to 8 bytes).
  virtual void Read(uint64_t offset, std::span<std::byte> into) = 0;
  virtual void Write(uint64_t offset, std::span<const std::byte> from) = 0;
};

class Bus {
 public:
  // Ranges do not overlap. `device` outlives the bus.
  void Add(uint64_t start, uint64_t size, BusDevice& device);

  // Where nobody answers, reads give all ones, writes vanish, and both are counted.
  void Read(uint64_t at, std::span<std::byte> into);
  void Write(uint64_t at, std::span<const std::byte> from);
  uint64_t unclaimed() const { return unclaimed_.load(std::memory_order_relaxed); }

 private:
  struct Range {
    uint64_t start;
    uint64_t size;
    BusDevice* device;
  };
  const Range* Find(uint64_t at, size_t length) const;
  std::vector<Range> ranges_;  // sorted by start
  std::atomic<uint64_t> unclaimed_ = 0;
};

}  // namespace space
