// The driver's side of one split queue, for tests and fuzz harnesses: builds rings in plain guest
// memory, well-formed or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memory/guest_memory.h"
#include "virtio/device.h"
#include "virtio/queue.h"

namespace space {

class FakeDriver {
 public:
  struct Part {
    uint64_t address;
    uint32_t length;
    bool is_writable;
  };
  struct Used {
    uint32_t head;
    uint32_t written;
  };

  static constexpr uint16_t kNext = 1;
  static constexpr uint16_t kWrite = 2;
  static constexpr uint16_t kIndirect = 4;

  // Rings in the 16 KiB from `base` (multiple of 4096); `size` at most 256.
  FakeDriver(const GuestMemory& memory, uint64_t base, uint16_t size)
      : memory_(&memory), size_(size), base_(base) {}

  QueueLayout layout() const {
    return {.size = size_,
            .descriptors = {base_},
            .available = {base_ + 8192},
            .used = {base_ + 12288}};
  }

  void SetDescriptor(uint16_t index, uint64_t address, uint32_t length, uint16_t flags,
                     uint16_t next) const {
    const uint64_t at = base_ + uint64_t{index} * 16;
    Put(at, address);
    Put(at + 8, length);
    Put(at + 12, flags);
    Put(at + 14, next);
  }
  // Puts `head` into the available ring and moves its index.
  void Offer(uint16_t head) {
    Put(base_ + 8192 + 4 + static_cast<uint64_t>(available_index_ % size_) * 2, head);
    SetAvailableIndex(static_cast<uint16_t>(available_index_ + 1));
  }
  void SetAvailableIndex(uint16_t index) {
    available_index_ = index;
    Put(base_ + 8192 + 2, index);
  }
  void SetAvailableFlags(uint16_t flags) const { Put(base_ + 8192, flags); }
  void SetUsedEvent(uint16_t index) const { Put(base_ + 8192 + 4 + uint64_t{size_} * 2, index); }

  // A chain of the next free descriptors (round and round: the test knows what is still in use).
  uint16_t Add(const std::vector<Part>& parts) {
    const uint16_t head = next_descriptor_;
    for (size_t at = 0; at < parts.size(); ++at) {
      const uint16_t index = next_descriptor_;
      next_descriptor_ = static_cast<uint16_t>((next_descriptor_ + 1) % size_);
      const bool is_last = at + 1 == parts.size();
      const auto flags =
          static_cast<uint16_t>((is_last ? 0 : kNext) | (parts[at].is_writable ? kWrite : 0));
      SetDescriptor(index, parts[at].address, parts[at].length, flags, next_descriptor_);
    }
    Offer(head);
    return head;
  }

  uint16_t used_index() const { return Get<uint16_t>(base_ + 12288 + 2); }
  uint16_t available_event() const {
    return Get<uint16_t>(base_ + 12288 + 4 + uint64_t{size_} * 8);
  }
  Used used(uint16_t index) const {
    const uint64_t at = base_ + 12288 + 4 + static_cast<uint64_t>(index % size_) * 8;
    return {Get<uint32_t>(at), Get<uint32_t>(at + 4)};
  }
  // The next chain that the device gave back, if any.
  std::optional<Used> TakeUsed() {
    if (used_index() == seen_used_) {
      return std::nullopt;
    }
    return used(seen_used_++);
  }

  template <class T>
  void Put(uint64_t address, const T& value) const {
    static_cast<void>(memory_->Write({address}, value));
  }
  template <class T>
  T Get(uint64_t address) const {
    return memory_->Read<T>({address}).value_or(T{});
  }
  void PutText(uint64_t address, std::string_view text) const {
    static_cast<void>(memory_->WriteBytes({address}, std::as_bytes(std::span(text))));
  }
  std::string GetText(uint64_t address, size_t length) const {
    const auto bytes = memory_->Slice({address}, length);
    return bytes ? std::string(reinterpret_cast<const char*>(bytes->data()), length) : "";
  }

 private:
  const GuestMemory* memory_;
  uint16_t size_;
  uint64_t base_;
  uint16_t available_index_ = 0;
  uint16_t next_descriptor_ = 0;
  uint16_t seen_used_ = 0;
};

// Remembers what the device signalled.
class FakeInterruptLine final : public InterruptLine {
 public:
  void SignalUsed() override { ++used; }
  void SignalConfig() override { ++config; }
  int used = 0;
  int config = 0;
};

// Remembers what is watched; the test plays the events.
class FakePoller final : public HostPoller {
 public:
  struct Entry {
    int fd;
    uint32_t events;
    uint64_t token;
  };
  Result<void> Watch(int fd, uint32_t events, uint64_t token) override {
    Unwatch(fd);
    entries.push_back({fd, events, token});
    return {};
  }
  void Unwatch(int fd) override {
    std::erase_if(entries, [fd](const Entry& entry) { return entry.fd == fd; });
  }
  std::vector<Entry> entries;
};

}  // namespace space
