#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/units.h"
#include "memory/freeze.h"

namespace space {
namespace {

// 8 bytes a run: a scattered 512 MiB has tens of thousands, listed while the guest stands still.
struct ShortRun {
  uint32_t first = 0;
  uint32_t end = 0;
};

std::vector<ShortRun> RunsOf(const PageBitmap& bitmap) {
  std::vector<ShortRun> runs;
  const std::span<const uint64_t> words = bitmap.words();
  for (uint64_t at = 0; at < words.size(); ++at) {
    uint64_t word = words[at];
    while (word != 0) {
      const auto first = static_cast<uint64_t>(std::countr_zero(word));
      const auto length = static_cast<uint64_t>(std::countr_one(word >> first));
      const auto begin = static_cast<uint32_t>(at * 64 + first);
      const auto end = static_cast<uint32_t>(begin + length);
      if (!runs.empty() && runs.back().end == begin) {
        runs.back().end = end;
      } else {
        runs.push_back({begin, end});
      }
      word = first + length == 64 ? 0 : word & (~uint64_t{0} << (first + length));
    }
  }
  return runs;
}

// Joins runs over the smallest gaps until at most `limit` are left. Returns the gap it came to.
uint64_t JoinRuns(std::vector<ShortRun>& runs, size_t limit) {
  uint64_t gap = 1;
  while (runs.size() > limit) {
    size_t kept = 0;
    size_t left = runs.size();
    for (size_t at = 1; at < runs.size(); ++at) {
      if (left > limit && runs[at].first - runs[kept].end <= gap) {
        runs[kept].end = runs[at].end;
        --left;
      } else {
        runs[++kept] = runs[at];
      }
    }
    runs.resize(kept + 1);
    if (runs.size() > limit) {
      gap *= 2;
    }
  }
  return gap;
}

// The same over the whole map: extents of any layer no longer than the gap become part of the new
// one when they lie no further from it than that.
void JoinExtents(std::vector<MemoryExtent>& extents, uint32_t new_layer, size_t limit,
                 uint64_t gap) {
  for (; extents.size() > limit; gap *= 2) {
    const auto can_move = [&](const MemoryExtent& extent) {
      return extent.layer == new_layer || extent.page_count <= gap;
    };
    size_t kept = 0;
    size_t left = extents.size();
    for (size_t at = 1; at < extents.size(); ++at) {
      MemoryExtent& last = extents[kept];
      const MemoryExtent next = extents[at];
      if (left > limit && can_move(last) && can_move(next) && next.first_page - last.end() <= gap) {
        last = {last.first_page, next.end() - last.first_page, new_layer};
        --left;
      } else {
        extents[++kept] = next;
      }
    }
    extents.resize(kept + 1);
  }
}

// Long stretches outside the runs with clean pages mapped; the fullest ones when there are many.
std::vector<PageRange> ChooseDontFork(const std::vector<PageRange>& runs, const PageBitmap& clean) {
  struct Candidate {
    PageRange pages;
    uint64_t mapped = 0;
  };
  std::vector<Candidate> candidates;
  const auto consider = [&](uint64_t from, uint64_t end) {
    if (end - from >= kMinDontForkPages) {
      const PageRange pages{from, end - from};
      if (const uint64_t mapped = clean.CountIn(pages); mapped > 0) {
        candidates.push_back({pages, mapped});
      }
    }
  };
  uint64_t from = 0;
  for (const PageRange& run : runs) {
    consider(from, run.first);
    from = run.end();
  }
  consider(from, clean.page_count());
  if (candidates.size() > kMaxDontForkRuns) {
    std::ranges::nth_element(candidates, candidates.begin() + kMaxDontForkRuns,
                             std::ranges::greater{}, &Candidate::mapped);
    candidates.resize(kMaxDontForkRuns);
    std::ranges::sort(candidates, {}, [](const Candidate& one) { return one.pages.first; });
  }
  std::vector<PageRange> chosen;
  for (const Candidate& candidate : candidates) {
    chosen.push_back(candidate.pages);
  }
  return chosen;
}

}  // namespace

FreezePlan PlanFreeze(const MemoryMap& current, uint32_t kept_layers, const PageBitmap& dirty,
                      const PageBitmap& clean, size_t extent_limit) {
  SPACE_CHECK(extent_limit > 0 && extent_limit <= MemoryMap::kMaxExtents &&
              kept_layers < MemoryMap::kMaxLayers && dirty.page_count() == clean.page_count() &&
              dirty.page_count() <= ~uint32_t{0});
  FreezePlan plan;
  plan.dirty_pages = dirty.Count();
  plan.content = dirty;
  plan.below = PageBitmap(dirty.page_count());
  PageBitmap needed = dirty;
  for (const MemoryExtent& extent : current.extents()) {
    const PageRange pages{extent.first_page, extent.page_count};
    plan.content.Set(pages);
    // Below a page of a layer that is not kept there may be an older one that is.
    if (kept_layers > 0) {
      plan.below.Set(pages);
    }
    if (extent.layer >= kept_layers) {
      needed.Set(pages);
    }
  }
  std::vector<ShortRun> short_runs = RunsOf(needed);
  const uint64_t gap = JoinRuns(short_runs, extent_limit);
  for (const ShortRun& run : short_runs) {
    plan.runs.push_back({run.first, run.end - run.first});
  }
  std::vector<MemoryExtent> extents = Overlay(current, plan.runs, kept_layers);
  JoinExtents(extents, kept_layers, extent_limit, gap);
  plan.runs.clear();
  for (const MemoryExtent& extent : extents) {
    if (extent.layer == kept_layers) {
      plan.runs.push_back({extent.first_page, extent.page_count});
      plan.written_pages += plan.content.CountIn(plan.runs.back());
    }
  }
  Result<MemoryMap> after = MemoryMap::Create(extents, dirty.page_count(), kept_layers + 1);
  SPACE_CHECK(after.has_value());
  plan.map_after = *std::move(after);
  plan.dont_fork = ChooseDontFork(plan.runs, clean);
  return plan;
}

DontForkMarks::DontForkMarks(const FreezePlan& plan, const GuestMemory& memory)
    : plan_(plan), memory_(memory) {
  for (const PageRange& pages : plan.dont_fork) {
    // When this fails (no memory to split a mapping), those behind it would fail too.
    if (::madvise(memory.flat().data() + pages.first * kPageBytes, pages.count * kPageBytes,
                  MADV_DONTFORK) != 0) {
      break;
    }
    ++marked_;
  }
}

void DontForkMarks::Undo() {
  // A failed mark may have reached a part of its range.
  const size_t touched = std::min(marked_ + 1, plan_.dont_fork.size());
  for (size_t at = 0; at < touched && !is_undone_; ++at) {
    const PageRange& pages = plan_.dont_fork[at];
    ::madvise(memory_.flat().data() + pages.first * kPageBytes, pages.count * kPageBytes,
              MADV_DOFORK);
  }
  is_undone_ = true;
}

}  // namespace space
