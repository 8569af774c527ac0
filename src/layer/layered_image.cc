#include "layer/layered_image.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>

#include "base/units.h"

namespace space {
namespace {

// Walks over scattered buffers of either kind.
template <class Byte>
class PartCursor {
 public:
  explicit PartCursor(std::span<const std::span<Byte>> parts) : parts_(parts) {}

  // The next at most `bytes` bytes as an I/O vector, without moving on.
  std::span<const iovec> Peek(uint64_t bytes) {
    size_t count = 0;
    size_t skip = within_;
    for (size_t at = part_; at < parts_.size() && count < vector_.size() && bytes > 0; ++at) {
      const std::span<Byte> rest = parts_[at].subspan(skip);
      const size_t length = std::min<uint64_t>(rest.size(), bytes);
      skip = 0;
      if (length > 0) {
        // iovec has no const form; pwritev does not write through it.
        vector_[count++] = {const_cast<void*>(static_cast<const void*>(rest.data())), length};
        bytes -= length;
      }
    }
    return {vector_.data(), count};
  }

  void Advance(uint64_t bytes) {
    while (part_ < parts_.size()) {
      const uint64_t rest = parts_[part_].size() - within_;
      if (bytes < rest) {
        within_ += bytes;
        return;
      }
      bytes -= rest;
      within_ = 0;
      ++part_;
    }
  }

 private:
  std::span<const std::span<Byte>> parts_;
  size_t part_ = 0;
  size_t within_ = 0;
  std::array<iovec, 64> vector_;
};

void FillZeros(PartCursor<std::byte>& into, uint64_t bytes) {
  while (bytes > 0) {
    uint64_t filled = 0;
    for (const iovec& part : into.Peek(bytes)) {
      std::fill_n(static_cast<std::byte*>(part.iov_base), part.iov_len, std::byte{0});
      filled += part.iov_len;
    }
    into.Advance(filled);
    bytes -= filled;
  }
}

// Reads `bytes` at `offset`; behind the end of the file there are zeros.
Result<void> ReadAt(int fd, uint64_t offset, uint64_t bytes, PartCursor<std::byte>& into) {
  while (bytes > 0) {
    const std::span<const iovec> parts = into.Peek(bytes);
    const ssize_t got =
        ::preadv(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read layer");
    }
    if (got == 0) {
      FillZeros(into, bytes);
      return {};
    }
    into.Advance(static_cast<uint64_t>(got));
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return {};
}

Result<void> WriteAt(int fd, uint64_t offset, uint64_t bytes, PartCursor<const std::byte>& from) {
  while (bytes > 0) {
    const std::span<const iovec> parts = from.Peek(bytes);
    const ssize_t put =
        ::pwritev(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return FailErrno("write layer");
    }
    from.Advance(static_cast<uint64_t>(put));
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<uint64_t>(put);
  }
  return {};
}

template <class Byte>
bool HoldsExactly(std::span<const std::span<Byte>> parts, uint64_t bytes) {
  uint64_t total = 0;
  for (const std::span<Byte>& part : parts) {
    total += part.size();
  }
  return total == bytes;
}

tl::unexpected<Error> Bad(std::string_view what, size_t place) {
  return Fail(ErrorCode::kInvalidArgument, what, "layer " + std::to_string(place));
}

}  // namespace

// Neighbouring pages that come from one place.
struct LayeredImage::Run {
  int fd = -1;  // -1: zeros
  uint64_t offset = 0;
  uint64_t count = 0;
};

Result<LayeredImage> LayeredImage::Open(std::vector<LayerSource> layers, uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes % kPageBytes != 0 || size_bytes > kMaxImageBytes) {
    return Fail(ErrorCode::kInvalidArgument, "image size is not a multiple of 4096 up to 16 TiB");
  }
  if (layers.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "image has no layers");
  }
  LayeredImage image;
  image.page_count_ = size_bytes / kPageBytes;
  image.index_ = PageIndex(image.page_count_);
  for (size_t place = 0; place < layers.size(); ++place) {
    LayerSource& source = layers[place];
    const bool is_top = place + 1 == layers.size();
    if (source.is_writable && (!is_top || source.format != LayerFormat::kSparse)) {
      return Bad("only a sparse top layer can be writable", place);
    }
    const std::string name = "layer " + std::to_string(place);
    if (source.format == LayerFormat::kRaw) {
      if (place != 0) {
        return Bad("a raw layer can only be at the bottom", place);
      }
      SPACE_TRY(const uint64_t bytes, FileSize(source.fd.get()), name);
      if (bytes > size_bytes) {
        return Bad("layer is larger than the image", place);
      }
      image.bottom_ = RawLayer{std::move(source.fd), bytes};
      continue;
    }
    SPACE_TRY(SparseLayer layer, SparseLayer::Open(std::move(source.fd)), name);
    if (layer.page_count() > image.page_count_) {
      return Bad("layer is larger than the image", place);
    }
    if (source.is_writable && layer.page_count() != image.page_count_) {
      return Bad("writable layer is not of the image's size", place);
    }
    if (image.frozen_.size() == PageIndex::kMaxLayers) {
      return Bad("image has too many layers", place);
    }
    image.index_.Overlay(layer, image.TopSource());
    if (source.is_writable) {
      image.top_.emplace(std::move(layer));
    } else {
      const LayerId id = layer.id();
      image.frozen_.push_back({std::move(layer).TakeFd(), id});
    }
  }
  return image;
}

LayeredImage::~LayeredImage() {
  if (top_.has_value() && top_->fd() != -1) {
    // Nobody is left to tell; a layer that must be whole is flushed first.
    static_cast<void>(top_->WriteMap());
  }
}

// The writable top's, or that of the layer to come.
PageIndex::Source LayeredImage::TopSource() const {
  return static_cast<PageIndex::Source>(frozen_.size() + 1);
}

Result<void> LayeredImage::CheckRange(PageRange range, bool for_writing) const {
  if (range.count > page_count_ || range.first > page_count_ - range.count) {
    return Fail(ErrorCode::kInvalidArgument, "pages outside the image");
  }
  if (for_writing && !top_.has_value()) {
    return Fail(ErrorCode::kPermissionDenied, "image is read-only");
  }
  return {};
}

// The longest run at the start of `range`: pages of one layer lie side by side in its file.
LayeredImage::Run LayeredImage::FindRun(PageRange range) const {
  const PageIndex::Run found = index_.FindRun(range);
  Run run{.count = found.count};
  if (found.source == PageIndex::kZeros) {
    return run;
  }
  if (found.source != PageIndex::kBelow) {
    const bool is_top = found.source > frozen_.size();
    run.fd = is_top ? top_->fd() : frozen_[found.source - size_t{1}].fd.get();
    run.offset = SparseLayer::FileOffset(range.first);
  } else if (bottom_.has_value() && range.first * kPageBytes < bottom_->size_bytes) {
    run.fd = bottom_->fd.get();
    run.offset = range.first * kPageBytes;
  }
  return run;
}

Result<void> LayeredImage::Read(PageRange range,
                                std::span<const std::span<std::byte>> parts) const {
  SPACE_TRY_VOID(CheckRange(range, false), "read image");
  if (!HoldsExactly(parts, range.count * kPageBytes)) {
    return Fail(ErrorCode::kInvalidArgument, "buffers do not match the pages to read");
  }
  PartCursor<std::byte> into(parts);
  while (range.count > 0) {
    const Run run = FindRun(range);
    if (run.fd == -1) {
      FillZeros(into, run.count * kPageBytes);
    } else {
      SPACE_TRY_VOID(ReadAt(run.fd, run.offset, run.count * kPageBytes, into), "read image");
    }
    range.first += run.count;
    range.count -= run.count;
  }
  return {};
}

Result<void> LayeredImage::Write(PageRange range,
                                 std::span<const std::span<const std::byte>> parts) {
  SPACE_TRY_VOID(CheckRange(range, true), "write image");
  if (!HoldsExactly(parts, range.count * kPageBytes)) {
    return Fail(ErrorCode::kInvalidArgument, "buffers do not match the pages to write");
  }
  PartCursor<const std::byte> from(parts);
  SPACE_TRY_VOID(
      WriteAt(top_->fd(), SparseLayer::FileOffset(range.first), range.count * kPageBytes, from),
      "write image");
  top_->Mark(range.first, range.count, PageState::kPresent);
  index_.Set(range, TopSource());
  return {};
}

Result<void> LayeredImage::Read(PageRange range, std::span<std::byte> into) const {
  return Read(range, std::span(&into, 1));
}

Result<void> LayeredImage::Write(PageRange range, std::span<const std::byte> from) {
  return Write(range, std::span(&from, 1));
}

Result<void> LayeredImage::Discard(PageRange range) {
  SPACE_TRY_VOID(CheckRange(range, true), "discard");
  if (range.count == 0) {
    return {};
  }
  // The tombstones alone make it read as zeros: a file system that cannot punch holes only keeps
  // the space.
  top_->Mark(range.first, range.count, PageState::kZero);
  index_.Set(range, PageIndex::kZeros);
  if (::fallocate(top_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(SparseLayer::FileOffset(range.first)),
                  static_cast<off_t>(range.count * kPageBytes)) != 0 &&
      errno != EOPNOTSUPP) {
    return FailErrno("discard");
  }
  return {};
}

Result<void> LayeredImage::Flush() {
  if (!top_.has_value()) {
    return {};
  }
  SPACE_TRY_VOID(top_->WriteMap(), "flush image");
  if (::fdatasync(top_->fd()) != 0) {
    return FailErrno("flush image");
  }
  return {};
}

std::vector<LayerId> LayeredImage::layer_ids() const {
  std::vector<LayerId> ids;
  for (const FrozenLayer& layer : frozen_) {
    ids.push_back(layer.id);
  }
  if (top_.has_value()) {
    ids.push_back(top_->id());
  }
  return ids;
}

Result<int> LayeredImage::Freeze(UniqueFd new_top) {
  if (!top_.has_value()) {
    return Fail(ErrorCode::kPermissionDenied, "image is read-only");
  }
  if (frozen_.size() + 1 >= PageIndex::kMaxLayers) {
    return Fail(ErrorCode::kExhausted, "image has too many layers");
  }
  SPACE_TRY(SparseLayer next, SparseLayer::Open(std::move(new_top)), "new top layer");
  if (next.page_count() != page_count_ || !next.is_empty()) {
    return Fail(ErrorCode::kInvalidArgument, "new top layer is not empty or of another size");
  }
  SPACE_TRY_VOID(top_->WriteMap(), "freeze top layer");
  const LayerId id = top_->id();
  frozen_.push_back({std::move(*top_).TakeFd(), id});
  top_.emplace(std::move(next));
  return frozen_.back().fd.get();
}

}  // namespace space
