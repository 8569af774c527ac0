// Runs in a child of a threaded process: no allocation, no lock, no errors as values.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/units.h"
#include "layer/page_map.h"
#include "memory/freeze.h"

namespace space {
namespace {

// One write; more would only keep its pages in no cache.
constexpr uint64_t kMaxWritePages = 256;

int WriteAll(int fd, std::span<const std::byte> from, uint64_t offset) {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return errno;
    }
    if (put == 0) {
      return EIO;
    }
    from = from.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return 0;
}

class FrozenWriter {
 public:
  FrozenWriter(const FreezePlan& plan, std::span<const std::byte> memory, int fd)
      : plan_(plan), memory_(memory), page_count_(memory.size() / kPageBytes), fd_(fd) {}

  int Write() {
    // As long as it will ever be, whatever of it stays a hole: extents must lie in the file.
    const uint64_t bytes =
        PageMapBlock::FileOffset(page_count_, PageMapBlock::CountFor(page_count_));
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
      return errno;
    }
    for (const PageRange& run : plan_.runs) {
      if (const int failed = WriteRun(run); failed != 0) {
        return failed;
      }
    }
    return FlushBlock();
  }

 private:
  bool IsZero(uint64_t page) const {
    const std::byte* const at = memory_.data() + page * kPageBytes;
    uint64_t first;
    std::memcpy(&first, at, sizeof(first));
    return first == 0 && std::memcmp(at, at + sizeof(first), kPageBytes - sizeof(first)) == 0;
  }

  int WriteRun(PageRange run) {
    for (uint64_t page = run.first; page < run.end();) {
      if (!plan_.content.Test(page)) {
        page = std::min(run.end(), plan_.content.NextSet(page));  // absent, and a hole
        continue;
      }
      if (IsZero(page)) {
        const bool is_covering = plan_.below.Test(page);
        if (const int failed = is_covering ? Mark(page, PageState::kZero) : 0; failed != 0) {
          return failed;
        }
        ++page;
        continue;
      }
      const uint64_t limit = std::min(run.end(), page + kMaxWritePages);
      uint64_t end = page + 1;
      while (end < limit && plan_.content.Test(end) && !IsZero(end)) {
        ++end;
      }
      if (const int failed = WritePages(page, end); failed != 0) {
        return failed;
      }
      page = end;
    }
    return 0;
  }

  int WritePages(uint64_t first, uint64_t end) {
    const auto bytes = memory_.subspan(first * kPageBytes, (end - first) * kPageBytes);
    if (const int failed = WriteAll(fd_, bytes, SparseLayer::FileOffset(first)); failed != 0) {
      return failed;
    }
    for (uint64_t page = first; page < end; ++page) {
      if (const int failed = Mark(page, PageState::kPresent); failed != 0) {
        return failed;
      }
    }
    return 0;
  }

  // Pages come in ascending order: one block of the map is open at a time.
  int Mark(uint64_t page, PageState state) {
    if (const uint64_t index = page / PageMapBlock::kPages; index != block_index_) {
      if (const int failed = FlushBlock(); failed != 0) {
        return failed;
      }
      block_index_ = index;
      block_.states.fill(0);
    }
    block_.SetState(page % PageMapBlock::kPages, state);
    is_marked_ = true;
    return 0;
  }

  int FlushBlock() {
    if (!is_marked_) {
      return 0;
    }
    is_marked_ = false;
    block_.Seal();
    return WriteAll(fd_, block_.bytes(), PageMapBlock::FileOffset(page_count_, block_index_));
  }

  const FreezePlan& plan_;
  std::span<const std::byte> memory_;
  uint64_t page_count_;
  int fd_;
  uint64_t block_index_ = 0;
  bool is_marked_ = false;
  PageMapBlock block_;
};

}  // namespace

Result<LayerId> CheckFreezeTarget(int fd, const GuestMemory& memory) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) {
    return FailErrno("duplicate memory layer");
  }
  SPACE_TRY(const SparseLayer layer, SparseLayer::Open(std::move(copy)), "new memory layer");
  if (layer.page_count() != memory.size_bytes() / kPageBytes || !layer.is_empty()) {
    return Fail(ErrorCode::kInvalidArgument, "new memory layer is not empty or of another size");
  }
  return layer.id();
}

int WriteFrozen(const FreezePlan& plan, const GuestMemory& memory, int fd) noexcept {
  return FrozenWriter(plan, memory.flat(), fd).Write();
}

}  // namespace space
