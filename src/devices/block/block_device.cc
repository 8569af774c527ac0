#include "devices/block/block_device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/log.h"
#include "base/units.h"
#include "state/state.h"

namespace space {
namespace {

// Virtio 1.2, 5.2.3.
constexpr uint64_t kFeatureSizeMax = 1ULL << 1;
constexpr uint64_t kFeatureSegmentMax = 1ULL << 2;
constexpr uint64_t kFeatureReadOnly = 1ULL << 5;
constexpr uint64_t kFeatureBlockSize = 1ULL << 6;
constexpr uint64_t kFeatureFlush = 1ULL << 9;
constexpr uint64_t kFeatureDiscard = 1ULL << 13;
constexpr uint64_t kFeatureWriteZeroes = 1ULL << 14;

constexpr std::array<uint16_t, 1> kQueueSizes = {256};
constexpr uint64_t kSectorBytes = 512;
constexpr uint32_t kSectorsPerPage = kPageBytes / kSectorBytes;
constexpr uint32_t kMaxSegments = 254;  // the queue less header and status
constexpr uint32_t kMaxSegmentBytes = 16 << 10;
static_assert(kMaxSegments * kMaxSegmentBytes + 17 <= Queue::kMaxChainBytes);
constexpr uint32_t kMaxEraseSectors = 2 << 20;  // 1 GiB: bounds the time of one request
constexpr uint32_t kMaxEraseSegments = 16;
constexpr size_t kIdBytes = 20;
// One call serves at most this, then the other devices have their turn.
constexpr int kRequestsPerCall = 64;
constexpr uint64_t kBytesPerCall = 8 << 20;

// Virtio 1.2, 5.2.4.
struct [[gnu::packed]] Config {
  uint64_t capacity_sectors = 0;
  uint32_t max_segment_bytes = kMaxSegmentBytes;
  uint32_t max_segments = kMaxSegments;
  uint32_t geometry = 0;
  uint32_t block_bytes = kPageBytes;
  uint64_t topology = 0;
  uint8_t writeback = 0;
  uint8_t unused0 = 0;
  uint16_t queue_count = 0;
  uint32_t max_discard_sectors = kMaxEraseSectors;
  uint32_t max_discard_segments = kMaxEraseSegments;
  uint32_t discard_alignment_sectors = kSectorsPerPage;
  uint32_t max_write_zeroes_sectors = kMaxEraseSectors;
  uint32_t max_write_zeroes_segments = kMaxEraseSegments;
  uint8_t write_zeroes_may_unmap = 1;
  std::array<uint8_t, 3> unused1{};
};
static_assert(sizeof(Config) == 60);
static_assert(offsetof(Config, block_bytes) == 20);
static_assert(offsetof(Config, max_discard_sectors) == 36);

// Virtio 1.2, 5.2.6.
struct RequestHeader {
  uint32_t type = 0;
  uint32_t reserved = 0;
  uint64_t sector = 0;
};
static_assert(sizeof(RequestHeader) == 16);

struct EraseSegment {
  uint64_t sector = 0;
  uint32_t sector_count = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(EraseSegment) == 16);

enum RequestType : uint32_t {
  kIn = 0,
  kOut = 1,
  kFlush = 4,
  kGetId = 8,
  kDiscard = 11,
  kWriteZeroes = 13,
};

enum Status : uint8_t { kOk = 0, kIoError = 1, kUnsupported = 2 };

// The middle of a chain: `length` bytes from `offset` on.
template <class Byte>
std::vector<std::span<Byte>> Cut(std::span<const std::span<Byte>> parts, uint64_t offset,
                                 uint64_t length) {
  std::vector<std::span<Byte>> cut;
  cut.reserve(parts.size());
  for (const std::span<Byte>& part : parts) {
    if (offset >= part.size()) {
      offset -= part.size();
      continue;
    }
    const size_t taken = std::min<uint64_t>(part.size() - offset, length);
    if (taken > 0) {
      cut.push_back(part.subspan(offset, taken));
    }
    length -= taken;
    offset = 0;
  }
  return cut;
}

// Whole pages, or nullopt-like count 0 when the sectors do not fall on pages.
PageRange PagesOf(uint64_t sector, uint64_t bytes) {
  if (sector % kSectorsPerPage != 0 || bytes % kPageBytes != 0) {
    return {};
  }
  return {.first = sector / kSectorsPerPage, .count = bytes / kPageBytes};
}

}  // namespace

BlockDevice::BlockDevice(LayeredImage image, std::string id)
    : image_(std::move(image)), id_(std::move(id)) {
  id_.resize(kIdBytes, '\0');
  Config config;
  config.capacity_sectors = image_.size_bytes() / kSectorBytes;
  static_assert(sizeof(config) == sizeof(config_));
  std::memcpy(config_.data(), &config, sizeof(config));
}

uint64_t BlockDevice::features() const {
  const uint64_t always = kFeatureSizeMax | kFeatureSegmentMax | kFeatureBlockSize | kFeatureFlush;
  return always | (image_.is_writable() ? kFeatureDiscard | kFeatureWriteZeroes : kFeatureReadOnly);
}

std::span<const uint16_t> BlockDevice::queue_sizes() const { return kQueueSizes; }

Result<void> BlockDevice::Activate(std::span<Queue> queues, uint64_t driver_features,
                                   InterruptLine& line) {
  queue_ = &queues[0];
  line_ = &line;
  // Virtio 1.2, 5.2.6.2: a driver that cannot flush believes every write to be stable.
  is_write_through_ = (driver_features & kFeatureFlush) == 0;
  return {};
}

void BlockDevice::Reset() {
  queue_ = nullptr;
  line_ = nullptr;
}

Result<void> BlockDevice::OnHostReady(uint64_t, uint32_t) { return {}; }

Result<bool> BlockDevice::OnQueueReady(size_t) {
  if (queue_ == nullptr) {
    return false;
  }
  bool has_more = true;
  uint64_t bytes = 0;
  for (int served = 0; served < kRequestsPerCall && bytes < kBytesPerCall; ++served) {
    SPACE_TRY(const std::optional<Chain> chain, queue_->Pop(), "take block request");
    if (!chain.has_value()) {
      SPACE_TRY(has_more, queue_->EnableNotifications(), "wait for block requests");
      if (!has_more) {
        break;
      }
      continue;
    }
    bytes += chain->readable_bytes + chain->writable_bytes;
    SPACE_TRY(const uint32_t written, Serve(*chain), "serve block request");
    SPACE_TRY_VOID(queue_->Push(chain->head, written), "return block request");
  }
  SPACE_TRY(const bool interrupts, queue_->ShouldInterrupt(), "return block requests");
  if (interrupts) {
    line_->SignalUsed();
  }
  return has_more;
}

Result<uint32_t> BlockDevice::Serve(const Chain& chain) {
  RequestHeader header;
  if (chain.writable_bytes == 0 ||
      CopyFrom(chain.readable, 0, std::as_writable_bytes(std::span(&header, 1))) !=
          sizeof(header)) {
    return Fail(ErrorCode::kGuestFault, "block request without header or status");
  }
  uint32_t written = 0;
  const uint8_t status = Dispatch(header.type, header.sector, chain, written);
  CopyTo(chain.writable, chain.writable_bytes - 1, std::as_bytes(std::span(&status, 1)));
  return written + 1;
}

uint8_t BlockDevice::Dispatch(uint32_t type, uint64_t sector, const Chain& chain,
                              uint32_t& written) {
  switch (type) {
    case kIn:
      return ReadBlocks(sector, chain, written);
    case kOut:
      return WriteBlocks(sector, chain);
    case kFlush:
      return Flush();
    case kGetId:
      return GetId(chain, written);
    case kDiscard:
      return Erase(chain, true);
    case kWriteZeroes:
      return Erase(chain, false);
    default:
      return kUnsupported;
  }
}

// Requests outside the disk are refused by the image.
uint8_t BlockDevice::ReadBlocks(uint64_t sector, const Chain& chain, uint32_t& written) {
  const uint64_t bytes = chain.writable_bytes - 1;
  const PageRange range = PagesOf(sector, bytes);
  if (range.count == 0) {
    return kIoError;
  }
  const auto parts = Cut<std::byte>(chain.writable, 0, bytes);
  const uint8_t status = Judge(image_.Read(range, parts), "block_read_failed");
  written = status == kOk ? static_cast<uint32_t>(bytes) : 0;
  return status;
}

uint8_t BlockDevice::WriteBlocks(uint64_t sector, const Chain& chain) {
  const uint64_t bytes = chain.readable_bytes - sizeof(RequestHeader);
  const PageRange range = PagesOf(sector, bytes);
  if (range.count == 0) {
    return kIoError;
  }
  const auto parts = Cut<const std::byte>(chain.readable, sizeof(RequestHeader), bytes);
  const uint8_t status = Judge(image_.Write(range, parts), "block_write_failed");
  return status == kOk && is_write_through_ ? Flush() : status;
}

uint8_t BlockDevice::Flush() { return Judge(image_.Flush(), "block_flush_failed"); }

uint8_t BlockDevice::Erase(const Chain& chain, bool is_discard) {
  const uint64_t bytes = chain.readable_bytes - sizeof(RequestHeader);
  if (!image_.is_writable()) {
    return kIoError;
  }
  if (bytes == 0 || bytes % sizeof(EraseSegment) != 0 ||
      bytes / sizeof(EraseSegment) > kMaxEraseSegments) {
    return kIoError;
  }
  for (uint64_t at = 0; at < bytes; at += sizeof(EraseSegment)) {
    EraseSegment segment;
    CopyFrom(chain.readable, sizeof(RequestHeader) + at,
             std::as_writable_bytes(std::span(&segment, 1)));
    // Virtio 1.2, 5.2.6.2: unknown flags, and unmap on a discard, are unsupported.
    if (segment.flags > (is_discard ? 0U : 1U)) {
      return kUnsupported;
    }
    const PageRange range = PagesOf(segment.sector, segment.sector_count * kSectorBytes);
    if (range.count == 0 || segment.sector_count > kMaxEraseSectors) {
      return kIoError;
    }
    const uint8_t status = Judge(image_.Discard(range), "block_discard_failed");
    if (status != kOk) {
      return status;
    }
  }
  return is_write_through_ ? Flush() : uint8_t{kOk};
}

uint8_t BlockDevice::GetId(const Chain& chain, uint32_t& written) const {
  const uint64_t room = std::min<uint64_t>(chain.writable_bytes - 1, id_.size());
  written =
      static_cast<uint32_t>(CopyTo(chain.writable, 0, std::as_bytes(std::span(id_)).first(room)));
  return kOk;
}

uint8_t BlockDevice::Judge(const Result<void>& outcome, const char* what) {
  if (outcome.has_value()) {
    return kOk;
  }
  const ErrorCode code = outcome.error().code();
  if (code != ErrorCode::kInvalidArgument && code != ErrorCode::kPermissionDenied) {
    ++io_errors_;  // the host's, not a request that makes no sense
    SPACE_LOG_LIMITED(log::Level::kError, what, {"why", outcome.error().message()});
  }
  return kIoError;
}

// The image is saved as layers; requests are never in flight between two calls.
void BlockDevice::Save(StateWriter& out) const { out.Add(name(), 1, ""); }

Result<void> BlockDevice::Restore(StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require(name(), 1), "restore block device");
  static_cast<void>(section);
  return {};
}

}  // namespace space
