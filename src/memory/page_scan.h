// What the kernel says about each page of guest memory, from /proc/self/pagemap.
//
// Dirty = (present or swapped) and not file-backed: written since the memory was mapped. A page of
// an anonymous gap that was only read shows up too (the kernel's zero page); who writes the pages
// drops the zeros. Clean = present and file-backed: mapped from a layer and never written.
//
// The descriptor must be the process's own: opened after exec, before privileges are dropped, and
// used by the process that opened it (a child of fork would see its parent). One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/fd.h"
#include "memory/guest_memory.h"
#include "memory/page_bitmap.h"

namespace space {

class PageScan {
 public:
  // Opens /proc/self/pagemap.
  static Result<PageScan> Open();
  // From a descriptor of this process's pagemap opened elsewhere.
  explicit PageScan(UniqueFd pagemap) : pagemap_(std::move(pagemap)) {}

  // Makes room for memory of this size, so that a Scan of it allocates nothing.
  void Reserve(uint64_t size_bytes);
  // Looks at all of `memory`; calls Reserve when that was not done.
  //   errors: kIo
  Result<void> Scan(const GuestMemory& memory);

  // Of the last Scan.
  const PageBitmap& dirty() const { return dirty_; }
  const PageBitmap& clean() const { return clean_; }

 private:
  UniqueFd pagemap_;
  std::vector<uint64_t> entries_;
  PageBitmap dirty_;
  PageBitmap clean_;
};

}  // namespace space
