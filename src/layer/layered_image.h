// A disk or memory image as a chain of page layers (DESIGN.md section 3): each page comes from the
// topmost layer that has it, zeros when none has. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "layer/page_index.h"
#include "layer/page_range.h"
#include "layer/sparse_layer.h"

namespace space {

enum class LayerFormat : uint8_t {
  kRaw = 0,     // complete: page n at n * 4096; bottom only, never written
  kSparse = 1,  // sparse_layer.h
};

struct LayerSource {
  UniqueFd fd;
  LayerFormat format = LayerFormat::kRaw;
  bool is_writable = false;  // the last one only, and only kSparse
};

class LayeredImage {
 public:
  // `layers` bottom first, at least one. `size_bytes` (multiple of 4096) is at least what each
  // layer holds; behind a shorter layer its pages are absent. Descriptors are kept.
  // At most 254 sparse layers; reading costs the same however many they are.
  //   errors: kInvalidArgument, naming the layer by its place
  static Result<LayeredImage> Open(std::vector<LayerSource> layers, uint64_t size_bytes);
  LayeredImage(LayeredImage&&) noexcept = default;
  LayeredImage& operator=(LayeredImage&&) noexcept = default;
  LayeredImage(const LayeredImage&) = delete;
  LayeredImage& operator=(const LayeredImage&) = delete;
  ~LayeredImage();  // writes the page map, without waiting for the disk

  uint64_t size_bytes() const { return page_count_ * 4096; }
  uint64_t page_count() const { return page_count_; }
  bool is_writable() const { return top_.has_value(); }

  // The parts together hold exactly range.count * 4096 bytes; a part may be of any length.
  //   errors: kInvalidArgument outside the image, kPermissionDenied on a read-only image, kIo
  Result<void> Read(PageRange range, std::span<const std::span<std::byte>> parts) const;
  Result<void> Write(PageRange range, std::span<const std::span<const std::byte>> parts);
  Result<void> Read(PageRange range, std::span<std::byte> into) const;
  Result<void> Write(PageRange range, std::span<const std::byte> from);
  // Both read as zeros afterwards and give the top's space back to the file system.
  Result<void> Discard(PageRange range);
  Result<void> WriteZeroes(PageRange range) { return Discard(range); }
  // What was written before is on disk afterwards: page map, then fdatasync of the top.
  Result<void> Flush();

  // Ids of the sparse layers, bottom first; the last one is the top's. A raw bottom has none.
  std::vector<LayerId> layer_ids() const;

  // Ends the writable top: its page map is written, nothing of ours changes it any more, and
  // `new_top` (an empty sparse layer of the image's size) takes the writes from here on. Does not
  // wait for the disk: the descriptor returned is the frozen layer's, for fdatasync; it stays owned
  // by the image. On failure nothing has changed.
  //   errors: kPermissionDenied on a read-only image, kInvalidArgument for a wrong new top,
  //   kExhausted when the chain is as long as it can be
  Result<int> Freeze(UniqueFd new_top);

 private:
  struct RawLayer {
    UniqueFd fd;
    uint64_t size_bytes = 0;
  };
  struct Run;

  LayeredImage() = default;
  Result<void> CheckRange(PageRange range, bool for_writing) const;
  Run FindRun(PageRange range) const;
  PageIndex::Source TopSource() const;

  struct FrozenLayer {
    UniqueFd fd;
    LayerId id{};
  };

  std::optional<RawLayer> bottom_;
  std::vector<FrozenLayer> frozen_;  // sparse ones, upwards; their maps are in the index
  std::optional<SparseLayer> top_;   // when writable
  PageIndex index_;
  uint64_t page_count_ = 0;
};

}  // namespace space
