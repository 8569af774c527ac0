#include "memory/page_scan.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/units.h"

namespace space {
namespace {

// Entries read at once: 128 MiB of memory in 256 KiB, which stay in the processor's cache.
constexpr uint64_t kChunkEntries = 32768;
static_assert(kChunkEntries % 64 == 0);

// One word of each bitmap from 64 entries. Linux 6.1, Documentation/admin-guide/mm/pagemap.rst:
// bit 63 present, 62 swapped, 61 file-backed or shared.
struct Words {
  uint64_t dirty = 0;
  uint64_t clean = 0;
};

Words Classify(std::span<const uint64_t, 64> entries) {
  Words words;
  for (size_t group = 0; group < 64; group += 8) {
    uint64_t any = 0;
    for (size_t at = group; at < group + 8; ++at) {
      any |= entries[at];
    }
    if (any >> 62 == 0) {
      continue;
    }
    for (size_t at = group; at < group + 8; ++at) {
      const uint64_t entry = entries[at];
      const uint64_t is_file = entry >> 61 & 1;
      words.dirty |= ((entry >> 63 | entry >> 62) & ~is_file & 1) << at;
      words.clean |= (entry >> 63 & is_file) << at;
    }
  }
  return words;
}

Result<void> ReadEntries(int fd, std::span<uint64_t> into, uint64_t first_entry) {
  std::span<std::byte> bytes = std::as_writable_bytes(into);
  uint64_t offset = first_entry * sizeof(uint64_t);
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read pagemap");
    }
    if (got == 0) {
      return Fail(ErrorCode::kIo, "pagemap ends early");
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace

Result<PageScan> PageScan::Open() {
  SPACE_TRY(UniqueFd pagemap, OpenReadOnly("/proc/self/pagemap"), "scan pages");
  return PageScan(std::move(pagemap));
}

void PageScan::Reserve(uint64_t size_bytes) {
  const uint64_t pages = size_bytes / kPageBytes;
  if (dirty_.page_count() != pages) {
    entries_.resize(kChunkEntries);
    dirty_ = PageBitmap(pages);
    clean_ = PageBitmap(pages);
  }
}

Result<void> PageScan::Scan(const GuestMemory& memory) {
  Reserve(memory.size_bytes());
  const uint64_t first = reinterpret_cast<uintptr_t>(memory.flat().data()) / kPageBytes;
  const uint64_t pages = dirty_.page_count();
  const std::span<uint64_t> dirty = dirty_.mutable_words();
  const std::span<uint64_t> clean = clean_.mutable_words();
  for (uint64_t at = 0; at < pages; at += kChunkEntries) {
    const uint64_t count = std::min(kChunkEntries, pages - at);
    SPACE_TRY_VOID(ReadEntries(pagemap_.get(), std::span(entries_).first(count), first + at),
                   "scan pages");
    const uint64_t padded = (count + 63) / 64 * 64;
    std::fill(entries_.begin() + static_cast<ptrdiff_t>(count),
              entries_.begin() + static_cast<ptrdiff_t>(padded), 0);
    for (uint64_t within = 0; within < padded; within += 64) {
      const Words words = Classify(std::span<const uint64_t, 64>(&entries_[within], 64));
      dirty[(at + within) / 64] = words.dirty;
      clean[(at + within) / 64] = words.clean;
    }
  }
  return {};
}

}  // namespace space
