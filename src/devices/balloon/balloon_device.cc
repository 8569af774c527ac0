#include "devices/balloon/balloon_device.h"

#include <sys/mman.h>

#include <array>
#include <cerrno>

#include "base/log.h"
#include "base/units.h"
#include "state/state.h"

namespace space {
namespace {

constexpr uint16_t kQueueSize = 64;  // Linux wants at least 32 for reports
constexpr std::array<uint16_t, 3> kQueueSizes = {kQueueSize, kQueueSize, kQueueSize};

// The whole pages inside `bytes`. Host and guest addresses are aligned alike.
std::span<std::byte> WholePages(std::span<std::byte> bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uint64_t before = (kPageBytes - address % kPageBytes) % kPageBytes;
  if (before >= bytes.size()) {
    return {};
  }
  const uint64_t behind = bytes.size() - before;
  return bytes.subspan(before, behind - behind % kPageBytes);
}

void Drop(std::span<std::byte> pages) {
  if (pages.empty() || ::madvise(pages.data(), pages.size(), MADV_DONTNEED) == 0) {
    return;
  }
  const int error = errno;
  // The guest does not mind: its pages stay as they were.
  SPACE_LOG_LIMITED(log::Level::kWarn, "free_pages_not_dropped", {"errno", error});
}

}  // namespace

std::span<const uint16_t> BalloonDevice::queue_sizes() const { return kQueueSizes; }

Result<void> BalloonDevice::Activate(std::span<Queue> queues, uint64_t, InterruptLine& line) {
  queues_ = queues;
  line_ = &line;
  queues_[kReportingQueue].SetMaxChainBytes(kMaxReportBytes);
  return {};
}

void BalloonDevice::Reset() {
  queues_ = {};
  line_ = nullptr;
}

Result<uint64_t> BalloonDevice::Take(size_t queue_index, const Chain& chain) const {
  // The balloon never asks for pages. A driver that gives some all the same, or takes them back,
  // has them answered and nothing else: the page numbers inside are not even read.
  if (queue_index != kReportingQueue) {
    return 0;
  }
  if (!chain.readable.empty()) {
    return Fail(ErrorCode::kGuestFault, "report of free pages has a buffer that is not writable");
  }
  for (const std::span<std::byte>& block : chain.writable) {
    Drop(WholePages(block));
  }
  return chain.writable_bytes;
}

Result<bool> BalloonDevice::OnQueueReady(size_t queue_index) {
  if (queue_index >= queues_.size()) {
    return false;
  }
  Queue& queue = queues_[queue_index];
  // The limit bounds the bytes, the queue's size the chains.
  bool has_more = true;
  uint64_t dropped = 0;
  for (uint16_t served = 0; served < kQueueSize && dropped < kMaxReportBytes; ++served) {
    SPACE_TRY(const std::optional<Chain> chain, queue.Pop(), "take free pages");
    if (!chain.has_value()) {
      SPACE_TRY(has_more, queue.EnableNotifications(), "wait for free pages");
      if (!has_more) {
        break;
      }
      continue;
    }
    SPACE_TRY(const uint64_t bytes, Take(queue_index, *chain), "take free pages");
    dropped += bytes;
    SPACE_TRY_VOID(queue.Push(chain->head, 0), "answer free pages");
  }
  SPACE_TRY(const bool interrupts, queue.ShouldInterrupt(), "answer free pages");
  if (interrupts) {
    line_->SignalUsed();
  }
  return has_more;
}

Result<void> BalloonDevice::OnHostReady(uint64_t, uint32_t) { return {}; }

void BalloonDevice::Save(StateWriter& out) const { out.Add(name(), 1, ""); }

Result<void> BalloonDevice::Restore(StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require(name(), 1), "restore balloon device");
  static_cast<void>(section);
  return {};
}

}  // namespace space
