#include "memory/memory_map.h"

#include <algorithm>

#include "base/bytes.h"

namespace space {
namespace {

void AppendJoined(std::vector<MemoryExtent>& extents, const MemoryExtent& next) {
  if (!extents.empty() && extents.back().layer == next.layer &&
      extents.back().end() == next.first_page) {
    extents.back().page_count += next.page_count;
  } else {
    extents.push_back(next);
  }
}

tl::unexpected<Error> Bad(std::string_view what, size_t place) {
  return Fail(ErrorCode::kInvalidArgument, what, "extent " + std::to_string(place));
}

}  // namespace

Result<MemoryMap> MemoryMap::Create(std::span<const MemoryExtent> extents, uint64_t memory_pages,
                                    uint32_t layer_count) {
  if (extents.size() > kMaxExtents || layer_count > kMaxLayers) {
    return Fail(ErrorCode::kInvalidArgument, "memory map has too many extents or layers");
  }
  MemoryMap map;
  map.extents_.reserve(extents.size());
  uint64_t end = 0;
  for (size_t place = 0; place < extents.size(); ++place) {
    const MemoryExtent& extent = extents[place];
    if (extent.page_count == 0 || extent.page_count > memory_pages ||
        extent.first_page > memory_pages - extent.page_count) {
      return Bad("memory map leaves the memory", place);
    }
    if (extent.first_page < end) {
      return Bad("memory map is out of order", place);
    }
    if (extent.layer >= layer_count) {
      return Bad("memory map names a missing layer", place);
    }
    end = extent.end();
    AppendJoined(map.extents_, extent);
  }
  return map;
}

std::string MemoryMap::Encode() const {
  ByteWriter out;
  out.Put(static_cast<uint32_t>(extents_.size()));
  for (const MemoryExtent& extent : extents_) {
    out.Put(extent.first_page);
    out.Put(extent.page_count);
    out.Put(extent.layer);
  }
  return std::move(out).Take();
}

Result<MemoryMap> MemoryMap::Decode(std::string_view bytes, uint64_t memory_pages,
                                    uint32_t layer_count) {
  ByteReader in(bytes);
  SPACE_TRY(const auto count, in.Get<uint32_t>(), "read memory map");
  if (count > kMaxExtents) {
    return Fail(ErrorCode::kInvalidArgument, "memory map has too many extents");
  }
  std::vector<MemoryExtent> extents(count);
  for (MemoryExtent& extent : extents) {
    SPACE_TRY(extent.first_page, in.Get<uint64_t>(), "read memory map");
    SPACE_TRY(extent.page_count, in.Get<uint64_t>(), "read memory map");
    SPACE_TRY(extent.layer, in.Get<uint32_t>(), "read memory map");
  }
  SPACE_TRY_VOID(in.Finish(), "read memory map");
  return Create(extents, memory_pages, layer_count);
}

std::vector<MemoryExtent> Overlay(const MemoryMap& below, std::span<const PageRange> runs,
                                  uint32_t kept_layers) {
  std::vector<MemoryExtent> result;
  result.reserve(below.extents().size() + 2 * runs.size());
  size_t next_run = 0;
  const auto append_runs_before = [&](uint64_t page) {
    for (; next_run < runs.size() && runs[next_run].first < page; ++next_run) {
      AppendJoined(result, {runs[next_run].first, runs[next_run].count, kept_layers});
    }
  };
  for (const MemoryExtent& extent : below.extents()) {
    if (extent.layer >= kept_layers) {
      continue;
    }
    append_runs_before(extent.first_page);
    // What of the extent no run covers, piece by piece.
    uint64_t at = extent.first_page;
    if (next_run > 0) {
      at = std::max(at, runs[next_run - 1].end());
    }
    while (at < extent.end()) {
      const bool is_cut = next_run < runs.size() && runs[next_run].first < extent.end();
      const uint64_t stop = is_cut ? runs[next_run].first : extent.end();
      if (stop > at) {
        AppendJoined(result, {at, stop - at, extent.layer});
      }
      if (!is_cut) {
        break;
      }
      AppendJoined(result, {runs[next_run].first, runs[next_run].count, kept_layers});
      at = runs[next_run].end();
      ++next_run;
    }
  }
  append_runs_before(~uint64_t{0});
  return result;
}

}  // namespace space
