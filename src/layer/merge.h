// Neighbouring sparse layers become one that stands for them all, when a disk's chain gets long.
#pragma once

#include <span>

#include "base/fd.h"
#include "layer/sparse_layer.h"

namespace space {

enum class MergeBelow {
  kLayers,   // tombstones are kept: they hide what lies further down
  kNothing,  // the lowest of them is the bottom of its chain: tombstones would hide nothing
};

// Copies what the chain of `layer_fds` (bottom first, open for reading) shows into `out`, an empty
// sparse layer with at least as many pages as each of them. The topmost layer wins. Does not wait
// for the disk. On failure `out` is no layer; the others are untouched. Blocks: not for an event
// loop. Uses copy_file_range, so that file systems with reflinks share the blocks.
//   errors: kInvalidArgument naming the layer by its place, kExhausted (disk full), kIo
Result<void> MergeLayers(std::span<const int> layer_fds, UniqueFd out, MergeBelow below);

}  // namespace space
