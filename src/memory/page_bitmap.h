// One bit per page of guest memory. Reading never allocates. One thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "layer/page_range.h"

namespace space {

class PageBitmap {
 public:
  PageBitmap() = default;
  explicit PageBitmap(uint64_t page_count)
      : page_count_(page_count), words_((page_count + 63) / 64) {}

  uint64_t page_count() const { return page_count_; }
  // Page p is bit p % 64 of word p / 64; bits behind the last page are zero.
  std::span<const uint64_t> words() const { return words_; }
  std::span<uint64_t> mutable_words() { return words_; }

  bool Test(uint64_t page) const { return ((words_[page / 64] >> (page % 64)) & 1) != 0; }
  // `range` lies below page_count.
  void Set(PageRange range);
  void Clear();
  uint64_t Count() const;
  uint64_t CountIn(PageRange range) const;
  // The first page at or behind `from` whose bit is set (or not); page_count when there is none.
  uint64_t NextSet(uint64_t from) const { return Next(from, 0); }
  uint64_t NextClear(uint64_t from) const { return Next(from, ~uint64_t{0}); }

 private:
  // `invert`: all ones to look for a zero bit.
  uint64_t Next(uint64_t from, uint64_t invert) const;

  uint64_t page_count_ = 0;
  std::vector<uint64_t> words_;
};

}  // namespace space
