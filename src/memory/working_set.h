// The pages that a machine touches when it starts from a snapshot, so that a later one gets them in
// bulk before it runs. Touched for reading = clean in a PageScan, written = dirty.
//
//   magic u64, version u32, range count u32, memory pages u64, then per range first page u32 with
//   bit 31 set when it was written, page count u32; CRC-32C u32 of all before it
//
// Read and written ranges are mixed, ascending and disjoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "memory/guest_memory.h"
#include "memory/page_scan.h"

namespace space {

struct WorkingSet {
  // Bounds file and time of a foreign one; a larger set loses its shortest ranges.
  static constexpr size_t kMaxRanges = 65536;

  struct Range {
    PageRange pages;
    bool is_written = false;
  };
  uint64_t memory_pages = 0;
  std::vector<Range> ranges;

  // From a scan of a machine that stands or runs. Short gaps between pages that were read are
  // joined (the kernel maps around a fault anyway), written ones never: filling a page for writing
  // makes it dirty.
  static WorkingSet Record(const PageBitmap& dirty, const PageBitmap& clean);
  std::string Encode() const;
  // Foreign bytes. kInvalidArgument for anything out of order or outside `memory_pages`.
  static Result<WorkingSet> Decode(std::string_view bytes, uint64_t memory_pages);
};

// Maps the ranges in bulk (MADV_POPULATE_READ and _WRITE). For memory that has not run, or stands
// still. kUnimplemented before Linux 5.14; the machine then only starts slower.
Result<void> Populate(const WorkingSet& set, const GuestMemory& memory);

}  // namespace space
