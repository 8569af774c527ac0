// Which layer of a chain each page comes from, in one look-up whatever the chain's length. Costs
// memory only where a sparse layer says something. Owned by LayeredImage; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "layer/page_range.h"
#include "layer/sparse_layer.h"

namespace space {

class PageIndex {
 public:
  // A page's source: kBelow (the raw bottom, or nothing), kZeros, or the place of a sparse layer
  // above the raw bottom plus 1.
  using Source = uint8_t;
  static constexpr Source kBelow = 0;
  static constexpr Source kZeros = 255;
  static constexpr size_t kMaxLayers = 254;

  PageIndex() = default;
  explicit PageIndex(uint64_t page_count) : chunks_((page_count + kChunk - 1) / kChunk) {}

  // Lays a layer's pages and tombstones over what is there. It has no more pages than this.
  void Overlay(const SparseLayer& layer, Source source);
  void Set(PageRange pages, Source source);

  struct Run {
    Source source = kBelow;
    uint64_t count = 0;
  };
  // How many pages from the start of `pages` (not empty) come from one source.
  Run FindRun(PageRange pages) const;

 private:
  static constexpr uint64_t kChunk = 1024;
  struct Chunk {
    Source source = kBelow;  // of all its pages, while `pages` is null
    std::unique_ptr<std::array<Source, kChunk>> pages;
  };
  std::vector<Chunk> chunks_;
};

}  // namespace space
