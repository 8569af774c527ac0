// One sparse layer file: the pages of an image that differ from the layers below.
//
//   page 0                 header: magic, version, flags, id, page count, reserved, CRC-32C
//   4096 + n * 4096        page n (a hole unless the map says present)
//   behind the data area   page map: blocks of 4096 bytes, each CRC-32C u32, reserved u32, then
//   4088
//                          bytes of 2-bit states, page n of the block in bits 2(n%4) of byte n/4;
//                          a hole (or a block behind the end of the file) means all absent
//
// Two bits because a hole in this layer must uncover nothing: a discarded page is a zero tombstone.
// The map is kept in memory; WriteMap writes the changed blocks (call it after the data is
// written). The header is written once, by the creator; flags and reserved bytes must be zero in
// version 1, so that a frozen or merged layer can say so in a later version. Owned by LayeredImage;
// one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/fd.h"
#include "layer/page_map.h"
#include "layer/page_range.h"

namespace space {

using LayerId = std::array<std::byte, 16>;

// Upper bound of an image: 16 TiB. Keeps every file offset far from overflow.
constexpr uint64_t kMaxImageBytes = 1ULL << 44;

// Makes `fd` (empty, read-write) a sparse layer without pages for an image of `size_bytes`
// (multiple of 4096), with a random id. Costs one page on disk.
Result<void> CreateSparseLayer(int fd, uint64_t size_bytes);
// With a given id: of a layer that stands for others, the topmost of which has it.
Result<void> CreateSparseLayer(int fd, uint64_t size_bytes, const LayerId& id);

class SparseLayer {
 public:
  // Takes a file made by CreateSparseLayer.
  //   errors: kInvalidArgument for foreign or damaged headers and maps, a later version
  static Result<SparseLayer> Open(UniqueFd fd);
  SparseLayer(SparseLayer&&) noexcept = default;
  SparseLayer& operator=(SparseLayer&&) noexcept = default;
  SparseLayer(const SparseLayer&) = delete;
  SparseLayer& operator=(const SparseLayer&) = delete;
  ~SparseLayer() = default;

  int fd() const { return fd_.get(); }
  uint64_t page_count() const { return page_count_; }
  const LayerId& id() const { return id_; }
  bool is_empty() const;  // no page present and no tombstone
  static uint64_t FileOffset(uint64_t page) { return (page + 1) * 4096; }

  // Pages at and behind page_count are absent.
  PageState StateOf(uint64_t page) const;
  // The next run of present pages or of tombstones at or behind `from`; count 0: none is left.
  struct MarkedRun {
    PageRange pages;
    PageState state = PageState::kAbsent;
  };
  MarkedRun NextMarked(uint64_t from) const;
  // Gives the descriptor up, with what was not written by WriteMap.
  UniqueFd TakeFd() && { return std::move(fd_); }
  // `state` for `count` pages, all below page_count. In memory until WriteMap.
  void Mark(uint64_t first, uint64_t count, PageState state);
  // Writes the changed blocks of the map; does not wait for the disk.
  Result<void> WriteMap();

 private:
  struct Block {
    bool is_dirty = false;
    PageMapBlock map;  // its checksum is set when it is written
  };

  SparseLayer(UniqueFd fd, uint64_t page_count, const LayerId& id);
  Result<void> LoadMap();

  UniqueFd fd_;
  uint64_t page_count_ = 0;
  LayerId id_{};
  std::vector<std::unique_ptr<Block>> blocks_;  // null: all absent; a fresh top costs no memory
};

}  // namespace space
