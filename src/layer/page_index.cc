#include "layer/page_index.h"

#include <algorithm>

namespace space {

void PageIndex::Overlay(const SparseLayer& layer, Source source) {
  for (auto run = layer.NextMarked(0); run.pages.count > 0;
       run = layer.NextMarked(run.pages.end())) {
    Set(run.pages, run.state == PageState::kZero ? kZeros : source);
  }
}

void PageIndex::Set(PageRange pages, Source source) {
  for (uint64_t at = pages.first; at < pages.end();) {
    Chunk& chunk = chunks_[at / kChunk];
    const uint64_t begin = at % kChunk;
    const uint64_t end = std::min(kChunk, begin + (pages.end() - at));
    at += end - begin;
    if (begin == 0 && end == kChunk) {
      chunk = {source, nullptr};
      continue;
    }
    if (chunk.pages == nullptr) {
      if (chunk.source == source) {
        continue;
      }
      chunk.pages = std::make_unique<std::array<Source, kChunk>>();
      chunk.pages->fill(chunk.source);
    }
    std::fill(chunk.pages->begin() + static_cast<ptrdiff_t>(begin),
              chunk.pages->begin() + static_cast<ptrdiff_t>(end), source);
  }
}

PageIndex::Run PageIndex::FindRun(PageRange pages) const {
  Run run;
  for (uint64_t at = pages.first; at < pages.end();) {
    const Chunk& chunk = chunks_[at / kChunk];
    const uint64_t begin = at % kChunk;
    const uint64_t end = std::min(kChunk, begin + (pages.end() - at));
    if (at == pages.first) {
      run.source = chunk.pages == nullptr ? chunk.source : (*chunk.pages)[begin];
    }
    uint64_t same = begin;
    if (chunk.pages == nullptr) {
      same = chunk.source == run.source ? end : begin;
    } else {
      while (same < end && (*chunk.pages)[same] == run.source) {
        ++same;
      }
    }
    run.count += same - begin;
    at += same - begin;
    if (same < end) {
      break;
    }
  }
  return run;
}

}  // namespace space
