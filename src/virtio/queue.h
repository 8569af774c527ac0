// Split virtqueue, device side (virtio 1.2, 2.7). The rings and descriptors are written by a
// hostile guest: every index, length and address is checked, each descriptor is copied before it is
// judged, and a chain is at most the queue's size long. Device lock held by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "memory/guest_memory.h"

namespace space {

// One chain of buffers whose spans are already checked to lie in guest memory.
struct Chain {
  uint16_t head = 0;
  std::vector<std::span<const std::byte>> readable;  // driver to device, first
  std::vector<std::span<std::byte>> writable;        // device to driver
  uint64_t readable_bytes = 0;
  uint64_t writable_bytes = 0;
};

// Copies across the spans of a chain, from `offset` on; returns what was copied (less at the end).
size_t CopyFrom(std::span<const std::span<const std::byte>> parts, uint64_t offset,
                std::span<std::byte> into);
size_t CopyTo(std::span<const std::span<std::byte>> parts, uint64_t offset,
              std::span<const std::byte> from);

struct QueueLayout {
  uint16_t size = 0;  // power of two, at most the device's maximum
  GuestAddress descriptors;
  GuestAddress available;
  GuestAddress used;
};

class Queue {
 public:
  // What one chain may claim in all, unless the device sets another limit: overlapping descriptors
  // could otherwise claim more than guest memory holds, and one call would take for ever.
  // virtio-blk's limits stay below it.
  static constexpr uint64_t kMaxChainBytes = 4 << 20;

  // kGuestFault when the size is not a power of two within 1..32768, or a ring is misaligned or
  // leaves guest memory.
  static Result<Queue> Create(const GuestMemory& memory, const QueueLayout& layout, bool event_idx);

  // A queue that the driver did not set up: always empty, refuses Push.
  static Queue Disabled() { return Queue(); }

  // Takes the next chain the driver offered; nullopt when the ring is empty.
  //   errors: kGuestFault; the queue then stays broken until reset
  //   spec:   virtio 1.2, 2.7.5, 2.7.6, 2.7.7
  Result<std::optional<Chain>> Pop();
  // Gives the last popped chain back unread (vsock: no credit, block: busy).
  void UndoPop();
  // Returns a chain to the driver with `written` bytes put into its writable part.
  Result<void> Push(uint16_t head, uint32_t written);
  // After a batch of Push: whether the driver wants an interrupt (VRING_AVAIL_F_NO_INTERRUPT, or
  // used_event with EVENT_IDX).
  Result<bool> ShouldInterrupt();
  // Asks for a notification when the driver adds buffers; true if some came meanwhile.
  Result<bool> EnableNotifications();

  bool is_enabled() const { return layout_.size != 0; }
  const QueueLayout& layout() const { return layout_; }
  uint16_t next_available() const { return next_available_; }
  uint16_t next_used() const { return next_used_; }
  // For a device whose driver offers more at once, in Activate.
  void SetMaxChainBytes(uint64_t bytes) { max_chain_bytes_ = bytes; }
  // For restore.
  void SetIndices(uint16_t next_available, uint16_t next_used);

 private:
  struct Descriptor;

  Queue() = default;
  Result<Descriptor> ReadDescriptor(uint16_t index) const;
  Result<void> AddPart(Chain& chain, const Descriptor& descriptor) const;
  Result<Chain> ReadChain(uint16_t head) const;
  tl::unexpected<Error> Break(std::string message);

  const GuestMemory* memory_ = nullptr;
  QueueLayout layout_;
  // The rings, checked once; guest memory is never unmapped while a device lives.
  std::span<std::byte> descriptors_;
  std::span<std::byte> available_;
  std::span<std::byte> used_;
  uint64_t max_chain_bytes_ = kMaxChainBytes;
  bool event_idx_ = false;
  bool is_broken_ = false;
  uint16_t next_available_ = 0;
  uint16_t next_used_ = 0;
  uint16_t last_signalled_used_ = 0;
};

}  // namespace space
