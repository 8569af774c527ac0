#include "memory/page_bitmap.h"

#include <algorithm>

namespace space {
namespace {

// Bits [from, to) of a word, to <= 64.
uint64_t Bits(uint64_t from, uint64_t to) {
  const uint64_t below = to == 64 ? ~uint64_t{0} : (uint64_t{1} << to) - 1;
  return below & (~uint64_t{0} << from);
}

// Calls `visit(word index, mask)` for each word that the range touches.
template <class Visit>
void ForEachWord(PageRange range, Visit visit) {
  const uint64_t end = range.first + range.count;
  for (uint64_t page = range.first; page < end;) {
    const uint64_t word_end = std::min(end, (page / 64 + 1) * 64);
    visit(page / 64, Bits(page % 64, word_end - page / 64 * 64));
    page = word_end;
  }
}

}  // namespace

void PageBitmap::Set(PageRange range) {
  ForEachWord(range, [this](uint64_t word, uint64_t mask) { words_[word] |= mask; });
}

void PageBitmap::Clear() { std::ranges::fill(words_, 0); }

uint64_t PageBitmap::Count() const { return CountIn({0, page_count_}); }

uint64_t PageBitmap::CountIn(PageRange range) const {
  uint64_t count = 0;
  ForEachWord(range, [&](uint64_t word, uint64_t mask) {
    count += static_cast<uint64_t>(std::popcount(words_[word] & mask));
  });
  return count;
}

uint64_t PageBitmap::Next(uint64_t from, uint64_t invert) const {
  if (from >= page_count_) {
    return page_count_;
  }
  uint64_t at = from / 64;
  uint64_t word = (words_[at] ^ invert) & (~uint64_t{0} << (from % 64));
  while (word == 0) {
    if (++at == words_.size()) {
      return page_count_;
    }
    word = words_[at] ^ invert;
  }
  return std::min(page_count_, at * 64 + static_cast<uint64_t>(std::countr_zero(word)));
}

}  // namespace space
