#include "layer/sparse_layer.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/random.h"
#include "base/units.h"
#include "state/crc32c.h"

namespace space {
namespace {

constexpr uint64_t kMagic = 0x315259414c435053;  // "SPCLAYR1"
constexpr uint32_t kVersion = 1;

// Read at once when a layer is opened: 512 MiB of pages in 32 KiB.
constexpr uint64_t kBlocksRead = 8;
// Times a state: 32 pages of that state.
constexpr uint64_t kOnePageEach = 0x5555555555555555;

struct Header {
  uint64_t magic = kMagic;
  uint32_t version = kVersion;
  uint32_t flags = 0;
  LayerId id{};
  uint64_t page_count = 0;
  std::array<std::byte, 4096 - 44> reserved{};
  uint32_t crc = 0;  // of all before it
};
static_assert(sizeof(Header) == 4096);
static_assert(offsetof(Header, crc) == 4092);
static_assert(std::is_trivially_copyable_v<Header>);

uint32_t CrcOf(const Header& header) {
  return Crc32c({reinterpret_cast<const char*>(&header), offsetof(Header, crc)});
}

Result<Header> ReadHeader(int fd) {
  Header header;
  SPACE_TRY_VOID(PreadFull(fd, std::as_writable_bytes(std::span(&header, 1)), 0),
                 "read layer header");
  if (header.magic != kMagic) {
    return Fail(ErrorCode::kInvalidArgument, "not a sparse layer (wrong magic number)");
  }
  if (header.version != kVersion) {
    return Fail(ErrorCode::kInvalidArgument, "sparse layer of another version",
                std::to_string(header.version));
  }
  if (header.crc != CrcOf(header)) {
    return Fail(ErrorCode::kInvalidArgument, "layer header is damaged");
  }
  if (header.flags != 0 || header.page_count == 0 ||
      header.page_count > kMaxImageBytes / kPageBytes) {
    return Fail(ErrorCode::kInvalidArgument, "layer header has values unknown to this version");
  }
  return header;
}

}  // namespace

Result<void> CreateSparseLayer(int fd, uint64_t size_bytes) {
  LayerId id{};
  FillRandom(id);
  return CreateSparseLayer(fd, size_bytes, id);
}

Result<void> CreateSparseLayer(int fd, uint64_t size_bytes, const LayerId& id) {
  if (size_bytes == 0 || size_bytes % kPageBytes != 0 || size_bytes > kMaxImageBytes) {
    return Fail(ErrorCode::kInvalidArgument, "layer size is not a multiple of 4096 up to 16 TiB");
  }
  SPACE_TRY(const uint64_t before, FileSize(fd), "create layer");
  if (before != 0) {
    return Fail(ErrorCode::kConflict, "file of the new layer is not empty");
  }
  Header header;
  header.id = id;
  header.page_count = size_bytes / kPageBytes;
  header.crc = CrcOf(header);
  return PwriteFull(fd, std::as_bytes(std::span(&header, 1)), 0);
}

SparseLayer::SparseLayer(UniqueFd fd, uint64_t page_count, const LayerId& id)
    : fd_(std::move(fd)),
      page_count_(page_count),
      id_(id),
      blocks_(PageMapBlock::CountFor(page_count)) {}

Result<SparseLayer> SparseLayer::Open(UniqueFd fd) {
  SPACE_TRY(const Header header, ReadHeader(fd.get()), "open layer");
  SparseLayer layer(std::move(fd), header.page_count, header.id);
  SPACE_TRY_VOID(layer.LoadMap(), "open layer");
  return layer;
}

Result<void> SparseLayer::LoadMap() {
  SPACE_TRY(const uint64_t file_bytes, FileSize(fd_.get()), "read layer map");
  const uint64_t map_start = PageMapBlock::FileOffset(page_count_, 0);
  // The last block may be cut off, which is damage, or the file may end before some.
  const uint64_t map_bytes = file_bytes > map_start ? file_bytes - map_start : 0;
  const uint64_t count =
      std::min<uint64_t>(blocks_.size(), (map_bytes + kPageBytes - 1) / kPageBytes);
  std::vector<PageMapBlock> batch(std::min(count, kBlocksRead));
  for (uint64_t first = 0; first < count; first += batch.size()) {
    const auto part = std::span(batch).first(std::min<uint64_t>(batch.size(), count - first));
    SPACE_TRY_VOID(PreadFull(fd_.get(), std::as_writable_bytes(part),
                             PageMapBlock::FileOffset(page_count_, first)),
                   "read layer map");
    for (size_t at = 0; at < part.size(); ++at) {
      if (part[at].is_hole()) {
        continue;
      }
      if (!part[at].is_intact()) {
        return Fail(ErrorCode::kInvalidArgument, "layer map is damaged");
      }
      blocks_[first + at] = std::make_unique<Block>(Block{.is_dirty = false, .map = part[at]});
    }
  }
  return {};
}

bool SparseLayer::is_empty() const {
  return std::ranges::all_of(blocks_, [](const std::unique_ptr<Block>& block) {
    return block == nullptr ||
           std::ranges::all_of(block->map.states, [](uint8_t four) { return four == 0; });
  });
}

PageState SparseLayer::StateOf(uint64_t page) const {
  if (page >= page_count_) {
    return PageState::kAbsent;
  }
  const Block* block = blocks_[page / PageMapBlock::kPages].get();
  return block == nullptr ? PageState::kAbsent : block->map.StateOf(page % PageMapBlock::kPages);
}

SparseLayer::MarkedRun SparseLayer::NextMarked(uint64_t from) const {
  MarkedRun run;  // absent and empty until the first marked page
  // Behind page_count a map may hold anything.
  for (uint64_t page = from; page < page_count_;) {
    const Block* block = blocks_[page / PageMapBlock::kPages].get();
    const uint64_t within = page % PageMapBlock::kPages;
    if (block == nullptr) {
      if (run.pages.count > 0) {
        break;
      }
      page += PageMapBlock::kPages - within;
      continue;
    }
    // 32 pages of one state at once where they lie together.
    if (within % 32 == 0) {
      const uint64_t word = block->map.WordOf(within / 4);
      if (word == static_cast<uint64_t>(run.state) * kOnePageEach) {
        page += 32;
        run.pages.count += run.pages.count > 0 ? 32 : 0;
        continue;
      }
    }
    const PageState state = block->map.StateOf(within);
    if (state != run.state) {
      if (run.pages.count > 0) {
        break;
      }
      run = {{page, 0}, state};
    }
    ++page;
    run.pages.count += run.state == PageState::kAbsent ? 0 : 1;
  }
  run.pages.count = std::min(run.pages.count, page_count_ - std::min(page_count_, run.pages.first));
  return run;
}

void SparseLayer::Mark(uint64_t first, uint64_t count, PageState state) {
  SPACE_CHECK(count <= page_count_ && first <= page_count_ - count);
  for (uint64_t page = first; page < first + count; ++page) {
    std::unique_ptr<Block>& block = blocks_[page / PageMapBlock::kPages];
    if (block == nullptr) {
      block = std::make_unique<Block>();
    }
    const uint64_t within = page % PageMapBlock::kPages;
    if (block->map.StateOf(within) != state) {
      block->map.SetState(within, state);
      block->is_dirty = true;
    }
  }
}

Result<void> SparseLayer::WriteMap() {
  for (size_t at = 0; at < blocks_.size(); ++at) {
    if (blocks_[at] == nullptr || !blocks_[at]->is_dirty) {
      continue;
    }
    blocks_[at]->map.Seal();
    SPACE_TRY_VOID(
        PwriteFull(fd_.get(), blocks_[at]->map.bytes(), PageMapBlock::FileOffset(page_count_, at)),
        "write layer map");
    blocks_[at]->is_dirty = false;
  }
  return {};
}

}  // namespace space
