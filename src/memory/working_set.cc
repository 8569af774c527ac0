#include "memory/working_set.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/bytes.h"
#include "base/units.h"
#include "state/crc32c.h"

namespace space {
namespace {

constexpr uint64_t kMagic = 0x315445534b525753;  // "SWRKSET1"
constexpr uint32_t kVersion = 1;
constexpr uint32_t kWrittenBit = 1U << 31;
// The kernel maps 16 pages around a read fault.
constexpr uint64_t kJoinedReadGap = 16;

// The run of set bits at `from`, up to `stop`.
PageRange RunAt(const PageBitmap& bitmap, uint64_t from, uint64_t stop) {
  return {from, std::min(bitmap.NextClear(from), stop) - from};
}

void KeepLongest(std::vector<WorkingSet::Range>& ranges) {
  if (ranges.size() <= WorkingSet::kMaxRanges) {
    return;
  }
  std::ranges::nth_element(ranges, ranges.begin() + WorkingSet::kMaxRanges, std::ranges::greater{},
                           [](const WorkingSet::Range& range) { return range.pages.count; });
  ranges.resize(WorkingSet::kMaxRanges);
  std::ranges::sort(ranges, {}, [](const WorkingSet::Range& range) { return range.pages.first; });
}

}  // namespace

WorkingSet WorkingSet::Record(const PageBitmap& dirty, const PageBitmap& clean) {
  WorkingSet set{.memory_pages = dirty.page_count(), .ranges = {}};
  uint64_t page = 0;
  for (;;) {
    const uint64_t next_dirty = dirty.NextSet(page);
    const uint64_t next_clean = clean.NextSet(page);
    const uint64_t first = std::min(next_dirty, next_clean);
    if (first == set.memory_pages) {
      break;
    }
    const bool is_written = first == next_dirty;
    const PageRange run =
        is_written ? RunAt(dirty, first, set.memory_pages) : RunAt(clean, first, next_dirty);
    page = run.end();
    if (!is_written && !set.ranges.empty()) {
      Range& last = set.ranges.back();
      if (!last.is_written && run.first - last.pages.end() <= kJoinedReadGap) {
        last.pages.count = run.end() - last.pages.first;
        continue;
      }
    }
    set.ranges.push_back({run, is_written});
  }
  KeepLongest(set.ranges);
  return set;
}

std::string WorkingSet::Encode() const {
  ByteWriter out;
  out.Put(kMagic);
  out.Put(kVersion);
  out.Put(static_cast<uint32_t>(ranges.size()));
  out.Put(memory_pages);
  for (const Range& range : ranges) {
    out.Put(static_cast<uint32_t>(range.pages.first) | (range.is_written ? kWrittenBit : 0));
    out.Put(static_cast<uint32_t>(range.pages.count));
  }
  out.Put(Crc32c(out.bytes()));
  return std::move(out).Take();
}

Result<WorkingSet> WorkingSet::Decode(std::string_view bytes, uint64_t memory_pages) {
  ByteReader in(bytes);
  SPACE_TRY(const auto magic, in.Get<uint64_t>(), "read working set");
  SPACE_TRY(const auto version, in.Get<uint32_t>(), "read working set");
  SPACE_TRY(const auto count, in.Get<uint32_t>(), "read working set");
  WorkingSet set;
  SPACE_TRY(set.memory_pages, in.Get<uint64_t>(), "read working set");
  if (magic != kMagic || version != kVersion) {
    return Fail(ErrorCode::kInvalidArgument, "not a working set, or of another version");
  }
  if (set.memory_pages != memory_pages || memory_pages >= kWrittenBit || count > kMaxRanges) {
    return Fail(ErrorCode::kInvalidArgument, "working set is of another memory or too large");
  }
  uint64_t end = 0;
  set.ranges.resize(count);
  for (Range& range : set.ranges) {
    SPACE_TRY(const auto first, in.Get<uint32_t>(), "read working set");
    SPACE_TRY(range.pages.count, in.Get<uint32_t>(), "read working set");
    range.is_written = (first & kWrittenBit) != 0;
    range.pages.first = first & ~kWrittenBit;
    if (range.pages.count == 0 || range.pages.first < end || range.pages.end() > memory_pages) {
      return Fail(ErrorCode::kInvalidArgument, "working set has a range out of place");
    }
    end = range.pages.end();
  }
  const std::string_view covered = bytes.substr(0, bytes.size() - in.rest().size());
  SPACE_TRY(const auto crc, in.Get<uint32_t>(), "read working set");
  SPACE_TRY_VOID(in.Finish(), "read working set");
  if (crc != Crc32c(covered)) {
    return Fail(ErrorCode::kInvalidArgument, "working set is damaged");
  }
  return set;
}

Result<void> Populate(const WorkingSet& set, const GuestMemory& memory) {
  if (set.memory_pages != memory.size_bytes() / kPageBytes) {
    return Fail(ErrorCode::kInvalidArgument, "working set is of another memory");
  }
  for (const WorkingSet::Range& range : set.ranges) {
    std::byte* const at = memory.flat().data() + range.pages.first * kPageBytes;
    const int advice = range.is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    while (::madvise(at, range.pages.count * kPageBytes, advice) != 0) {
      if (errno == EINVAL) {
        return Fail(ErrorCode::kUnimplemented, "this kernel cannot populate memory in bulk");
      }
      if (errno != EINTR) {
        return FailErrno("populate working set");
      }
    }
  }
  return {};
}

}  // namespace space
