// Writes the memory of a standing machine as one new layer while the machine goes on: plan in the
// pause, fork, and the child writes what it sees (DESIGN.md 3.4).
//
//   paused:  scan.Scan(memory); plan = PlanFreeze(...); DontForkMarks marks(plan, memory);
//            fork(); marks.Undo();
//   child:   WriteFrozen(plan, memory, fd), fdatasync, _exit
//   parent:  goes on; once the child has exited with 0, plan.map_after over the kept layers and the
//            new one is the snapshot
//
// The written pages are the dirty ones, those whose extent in the current map comes from a layer
// that is not kept, and gaps between these, filled so that map_after stays within the limit.
#pragma once

#include <cstdint>
#include <vector>

#include "layer/sparse_layer.h"
#include "memory/guest_memory.h"
#include "memory/memory_map.h"
#include "memory/page_bitmap.h"

namespace space {

// Clean runs shorter than this are copied by the fork: a mark costs about as much.
constexpr uint64_t kMinDontForkPages = 512;
constexpr size_t kMaxDontForkRuns = 256;

struct FreezePlan {
  // What the new layer holds: its extents in map_after, ascending, apart from each other.
  std::vector<PageRange> runs;
  // Of the kept layers and the new one, which is layer kept_layers.
  MemoryMap map_after;
  // Pages that may differ from zero; what is in a run and not in here is not even looked at.
  PageBitmap content;
  // Pages that a kept layer may have something for: a zero page there needs a tombstone.
  PageBitmap below;
  // Not to be copied by the fork: clean, mapped, not in a run.
  std::vector<PageRange> dont_fork;
  uint64_t dirty_pages = 0;
  uint64_t written_pages = 0;  // at most: in a run and in content; zero pages take no space
};

// `current` is the map that the memory was made from (empty for a booted machine), `kept_layers` at
// most its number of layers; `dirty` and `clean` are a scan of the standing machine. At most
// `extent_limit` (1 or more) extents in map_after.
FreezePlan PlanFreeze(const MemoryMap& current, uint32_t kept_layers, const PageBitmap& dirty,
                      const PageBitmap& clean, size_t extent_limit = MemoryMap::kMaxExtents);

// MADV_DONTFORK on plan.dont_fork from here to Undo or destruction: the moment of the fork. A mark
// that cannot be set is left out (the fork is slower then, not wrong).
class [[nodiscard]] DontForkMarks {
 public:
  DontForkMarks(const FreezePlan& plan, const GuestMemory& memory);
  DontForkMarks(const DontForkMarks&) = delete;
  DontForkMarks& operator=(const DontForkMarks&) = delete;
  DontForkMarks(DontForkMarks&&) = delete;
  DontForkMarks& operator=(DontForkMarks&&) = delete;
  ~DontForkMarks() { Undo(); }
  void Undo();

 private:
  const FreezePlan& plan_;
  const GuestMemory& memory_;
  size_t marked_ = 0;
  bool is_undone_ = false;
};

// Before the pause: `fd` is an empty sparse layer for exactly this memory; its id.
Result<LayerId> CheckFreezeTarget(int fd, const GuestMemory& memory);

// In the child, or anywhere that `memory` stands still: writes the runs and the page map into `fd`,
// which CheckFreezeTarget accepted. Async-signal-safe: no allocation, no lock. Does not wait for
// the disk. 0, or errno of what failed; the file is then no layer.
int WriteFrozen(const FreezePlan& plan, const GuestMemory& memory, int fd) noexcept;

}  // namespace space
