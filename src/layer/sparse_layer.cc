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
  for (size_t at = 0; at < blocks_.size(); ++at) {
    const uint64_t offset = PageMapBlock::FileOffset(page_count_, at);
    if (offset >= file_bytes) {
      break;
    }
    PageMapBlock block;
    SPACE_TRY_VOID(PreadFull(fd_.get(), std::as_writable_bytes(std::span(&block, 1)), offset),
                   "read layer map");
    if (block.is_hole()) {
      continue;
    }
    if (!block.is_intact()) {
      return Fail(ErrorCode::kInvalidArgument, "layer map is damaged");
    }
    blocks_[at] = std::make_unique<Block>();
    blocks_[at]->map = block;
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
  MarkedRun run;
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
    const uint8_t four = block->map.states[within / 4];
    const auto state = static_cast<PageState>((four >> (within % 4 * 2)) & 3);
    if (run.pages.count == 0) {
      if (state == PageState::kAbsent) {
        page += four == 0 ? 4 - within % 4 : 1;
        continue;
      }
      run = {{page, 0}, state};
    } else if (state != run.state) {
      break;
    }
    // Four pages of one state at once.
    const bool is_whole = within % 4 == 0 && four == static_cast<uint8_t>(state) * 0x55;
    page = std::min(page_count_, page + (is_whole ? 4 : 1));
    run.pages.count = page - run.pages.first;
  }
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
