// A split queue over rings that are the input itself: pops what comes, writes into all of it,
// pushes.
#include <algorithm>
#include <cstdlib>

#include "input.h"
#include "virtio/queue.h"

namespace {

using space::Chain;
using space::GuestMemory;

constexpr uint64_t kMemoryBytes = 64 << 10;

void CheckAndFill(const Chain& chain, uint16_t queue_size) {
  uint64_t readable = 0;
  uint64_t writable = 0;
  for (const auto& part : chain.readable) {
    readable += part.size();
  }
  for (const auto& part : chain.writable) {
    writable += part.size();
    std::ranges::fill(part.first(std::min<size_t>(part.size(), 64)), std::byte{0xa5});
  }
  if (chain.readable.size() + chain.writable.size() > queue_size ||
      readable != chain.readable_bytes || writable != chain.writable_bytes ||
      readable + writable > space::Queue::kMaxChainBytes) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const GuestMemory memory = *GuestMemory::Create(kMemoryBytes);
  space::fuzz::Input input(data, size);
  const space::QueueLayout layout{.size = input.Take<uint16_t>(),
                                  .descriptors = {input.Take<uint32_t>()},
                                  .available = {input.Take<uint32_t>()},
                                  .used = {input.Take<uint32_t>()}};
  const bool event_idx = input.Take<uint8_t>() % 2 == 1;
  const auto bytes = *memory.Slice({0}, kMemoryBytes);
  std::ranges::fill(bytes, std::byte{0});
  std::ranges::copy(input.TakeBytes(kMemoryBytes), bytes.begin());
  auto queue = space::Queue::Create(memory, layout, event_idx);
  if (!queue.has_value()) {
    return 0;
  }
  for (int round = 0; round < 64; ++round) {
    const auto chain = queue->Pop();
    if (!chain.has_value() || !chain->has_value()) {
      break;
    }
    CheckAndFill(**chain, layout.size);
    if (round % 7 == 6) {
      queue->UndoPop();
    } else {
      static_cast<void>(queue->Push((*chain)->head, 1));
    }
    static_cast<void>(queue->ShouldInterrupt());
    static_cast<void>(queue->EnableNotifications());
  }
  return 0;
}
