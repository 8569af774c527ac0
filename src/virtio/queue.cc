#include "virtio/queue.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

namespace space {
namespace {

constexpr uint32_t kMaxQueueSize = 32768;
constexpr uint16_t kNext = 1;
constexpr uint16_t kWrite = 2;
constexpr uint16_t kIndirect = 4;
constexpr uint16_t kNoInterrupt = 1;
// Of the two rings: flags u16, index u16, entries, then used_event or avail_event u16.
constexpr size_t kRingIndex = 2;
constexpr size_t kRingEntries = 4;
constexpr size_t kDescriptorBytes = 16;
constexpr size_t kUsedEntryBytes = 8;

// The guest writes at the same time: each field is loaded or stored once, whole. Ring addresses and
// offsets are aligned (checked by Create, virtio 1.2, 2.7).
template <class T>
T Load(std::span<const std::byte> ring, size_t offset, int order) {
  return __atomic_load_n(reinterpret_cast<const T*>(ring.data() + offset), order);
}
template <class T>
void Store(std::span<std::byte> ring, size_t offset, T value, int order) {
  __atomic_store_n(reinterpret_cast<T*>(ring.data() + offset), value, order);
}

Result<std::span<std::byte>> Ring(const GuestMemory& memory, GuestAddress at, size_t size_bytes,
                                  size_t alignment, std::string_view name) {
  if (at.value % alignment != 0) {
    return Fail(ErrorCode::kGuestFault, "ring is misaligned", name);
  }
  SPACE_TRY(const std::span<std::byte> bytes, memory.Slice(at, size_bytes), name);
  return bytes;
}

template <class Byte, class Other, class Copy>
size_t Walk(std::span<const std::span<Byte>> parts, uint64_t offset, std::span<Other> other,
            Copy copy) {
  size_t done = 0;
  for (const std::span<Byte>& part : parts) {
    if (offset >= part.size()) {
      offset -= part.size();
      continue;
    }
    const size_t length = std::min(part.size() - offset, other.size() - done);
    copy(part.subspan(offset, length), other.subspan(done, length));
    done += length;
    offset = 0;
    if (done == other.size()) {
      break;
    }
  }
  return done;
}

}  // namespace

struct Queue::Descriptor {
  GuestAddress address;
  uint32_t length = 0;
  uint16_t flags = 0;
  uint16_t next = 0;
};

size_t CopyFrom(std::span<const std::span<const std::byte>> parts, uint64_t offset,
                std::span<std::byte> into) {
  return Walk(parts, offset, into,
              [](auto part, auto mine) { std::ranges::copy(part, mine.begin()); });
}

size_t CopyTo(std::span<const std::span<std::byte>> parts, uint64_t offset,
              std::span<const std::byte> from) {
  return Walk(parts, offset, from,
              [](auto part, auto mine) { std::ranges::copy(mine, part.begin()); });
}

Result<Queue> Queue::Create(const GuestMemory& memory, const QueueLayout& layout, bool event_idx) {
  if (layout.size == 0 || layout.size > kMaxQueueSize || !std::has_single_bit(layout.size)) {
    return Fail(ErrorCode::kGuestFault, "queue size is not a power of two up to 32768");
  }
  Queue queue;
  queue.memory_ = &memory;
  queue.layout_ = layout;
  queue.event_idx_ = event_idx;
  const size_t size = layout.size;
  const size_t event_bytes = sizeof(uint16_t);
  SPACE_TRY(queue.descriptors_,
            Ring(memory, layout.descriptors, size * kDescriptorBytes, 16, "descriptor table"),
            "create queue");
  SPACE_TRY(queue.available_,
            Ring(memory, layout.available, kRingEntries + size * 2 + event_bytes, 2, "available"),
            "create queue");
  SPACE_TRY(
      queue.used_,
      Ring(memory, layout.used, kRingEntries + size * kUsedEntryBytes + event_bytes, 4, "used"),
      "create queue");
  return queue;
}

tl::unexpected<Error> Queue::Break(std::string message) {
  is_broken_ = true;
  return Fail(ErrorCode::kGuestFault, std::move(message));
}

Result<Queue::Descriptor> Queue::ReadDescriptor(uint16_t index) const {
  if (index >= layout_.size) {
    return Fail(ErrorCode::kGuestFault, "descriptor index outside the queue");
  }
  const size_t at = index * kDescriptorBytes;
  const auto tail = Load<uint64_t>(descriptors_, at + 8, __ATOMIC_RELAXED);
  return Descriptor{.address = {Load<uint64_t>(descriptors_, at, __ATOMIC_RELAXED)},
                    .length = static_cast<uint32_t>(tail),
                    .flags = static_cast<uint16_t>(tail >> 32),
                    .next = static_cast<uint16_t>(tail >> 48)};
}

Result<void> Queue::AddPart(Chain& chain, const Descriptor& descriptor) const {
  if ((descriptor.flags & kIndirect) != 0) {
    return Fail(ErrorCode::kGuestFault, "indirect descriptor, which was not offered");
  }
  SPACE_TRY(const std::span<std::byte> bytes, memory_->Slice(descriptor.address, descriptor.length),
            "read descriptor");
  if ((descriptor.flags & kWrite) != 0) {
    chain.writable.push_back(bytes);
    chain.writable_bytes += bytes.size();
  } else if (!chain.writable.empty()) {
    return Fail(ErrorCode::kGuestFault, "readable descriptor behind a writable one");
  } else {
    chain.readable.emplace_back(bytes);
    chain.readable_bytes += bytes.size();
  }
  if (chain.readable_bytes + chain.writable_bytes > max_chain_bytes_) {
    return Fail(ErrorCode::kGuestFault, "descriptor chain claims too many bytes");
  }
  return {};
}

Result<Chain> Queue::ReadChain(uint16_t head) const {
  Chain chain;
  chain.head = head;
  uint16_t index = head;
  for (uint32_t length = 0; length < layout_.size; ++length) {
    SPACE_TRY(const Descriptor descriptor, ReadDescriptor(index), "read chain");
    SPACE_TRY_VOID(AddPart(chain, descriptor), "read chain");
    if ((descriptor.flags & kNext) == 0) {
      return chain;
    }
    index = descriptor.next;
  }
  return Fail(ErrorCode::kGuestFault, "descriptor chain is a loop");
}

Result<std::optional<Chain>> Queue::Pop() {
  if (is_broken_) {
    return Fail(ErrorCode::kGuestFault, "queue is broken until reset");
  }
  if (!is_enabled()) {
    return std::nullopt;
  }
  // Acquire: what the driver wrote before it moved the index is visible.
  const auto offered = Load<uint16_t>(available_, kRingIndex, __ATOMIC_ACQUIRE);
  const auto waiting = static_cast<uint16_t>(offered - next_available_);
  if (waiting == 0) {
    return std::nullopt;
  }
  if (waiting > layout_.size) {
    return Break("available index is ahead by more than the queue's size");
  }
  const size_t slot = next_available_ % layout_.size;
  const auto head = Load<uint16_t>(available_, kRingEntries + slot * 2, __ATOMIC_RELAXED);
  Result<Chain> chain = ReadChain(head);
  if (!chain.has_value()) {
    is_broken_ = true;
    return Fail(std::move(chain).error());
  }
  ++next_available_;
  return std::move(chain).value();
}

void Queue::UndoPop() { --next_available_; }

Result<void> Queue::Push(uint16_t head, uint32_t written) {
  if (is_broken_ || !is_enabled()) {
    return Fail(ErrorCode::kGuestFault, "queue is broken or not set up");
  }
  const size_t at = kRingEntries + (next_used_ % layout_.size) * kUsedEntryBytes;
  Store<uint32_t>(used_, at, head, __ATOMIC_RELAXED);
  Store<uint32_t>(used_, at + 4, written, __ATOMIC_RELAXED);
  ++next_used_;
  // Release: the driver sees entry and data before the index.
  Store<uint16_t>(used_, kRingIndex, next_used_, __ATOMIC_RELEASE);
  return {};
}

Result<bool> Queue::ShouldInterrupt() {
  if (is_broken_) {
    return Fail(ErrorCode::kGuestFault, "queue is broken until reset");
  }
  if (!is_enabled()) {
    return false;
  }
  // Our index must be visible before we look whether the driver sleeps (it does the reverse).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!event_idx_) {
    const bool news = next_used_ != last_signalled_used_;
    last_signalled_used_ = next_used_;
    return news && (Load<uint16_t>(available_, 0, __ATOMIC_RELAXED) & kNoInterrupt) == 0;
  }
  // Virtio 1.2, 2.7.7.2: the driver waits for the entry after used_event.
  const auto used_event =
      Load<uint16_t>(available_, kRingEntries + size_t{layout_.size} * 2, __ATOMIC_RELAXED);
  const auto advanced = static_cast<uint16_t>(next_used_ - last_signalled_used_);
  const bool wanted = static_cast<uint16_t>(next_used_ - used_event - 1) < advanced;
  last_signalled_used_ = next_used_;
  return wanted;
}

Result<bool> Queue::EnableNotifications() {
  if (is_broken_) {
    return Fail(ErrorCode::kGuestFault, "queue is broken until reset");
  }
  if (!is_enabled()) {
    return false;
  }
  if (event_idx_) {
    Store<uint16_t>(used_, kRingEntries + size_t{layout_.size} * kUsedEntryBytes, next_available_,
                    __ATOMIC_RELAXED);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return Load<uint16_t>(available_, kRingIndex, __ATOMIC_RELAXED) != next_available_;
}

void Queue::SetIndices(uint16_t next_available, uint16_t next_used) {
  next_available_ = next_available;
  next_used_ = next_used;
  last_signalled_used_ = next_used;
}

}  // namespace space
