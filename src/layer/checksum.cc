#include "layer/checksum.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "layer/sparse_layer.h"
#include "state/crc32c.h"

namespace space {
namespace {

constexpr uint64_t kMagic = 0x31534d5553435053;  // "SPCSUMS1"
constexpr uint32_t kVersion = 1;

struct Extent {
  uint32_t first = 0;
  uint32_t count = 0;
  uint64_t end() const { return uint64_t{first} + count; }
};

struct Sidecar {
  uint64_t file_bytes = 0;
  std::vector<Extent> extents;
  std::string_view sums;  // 4 bytes a block
};

uint64_t BlockCount(uint64_t file_bytes) {
  return (file_bytes + kChecksumBlockBytes - 1) / kChecksumBlockBytes;
}

// The next blocks at or behind `block` with data in them; count 0: none.
Result<Extent> NextData(int fd, uint64_t block, uint64_t file_bytes) {
  const uint64_t blocks = BlockCount(file_bytes);
  if (block >= blocks) {
    return Extent{};
  }
  const off_t data = ::lseek(fd, static_cast<off_t>(block * kChecksumBlockBytes), SEEK_DATA);
  if (data < 0 && errno == ENXIO) {
    return Extent{};
  }
  if (data < 0 && errno == EINVAL) {  // this file system does not tell
    return Extent{static_cast<uint32_t>(block), static_cast<uint32_t>(blocks - block)};
  }
  if (data < 0) {
    return FailErrno("look for data in layer");
  }
  const off_t hole = ::lseek(fd, data, SEEK_HOLE);
  if (hole < 0) {
    return FailErrno("look for data in layer");
  }
  const uint64_t first = static_cast<uint64_t>(data) / kChecksumBlockBytes;
  const uint64_t end = std::min(blocks, BlockCount(static_cast<uint64_t>(hole)));
  return Extent{static_cast<uint32_t>(first), static_cast<uint32_t>(std::max(end, first) - first)};
}

class BlockReader {
 public:
  BlockReader(int fd, uint64_t file_bytes) : fd_(fd), file_bytes_(file_bytes) {}

  // The bytes of one block, the last one as short as it is.
  Result<std::string_view> Read(uint64_t block) {
    const uint64_t offset = block * kChecksumBlockBytes;
    const auto part = std::span(buffer_).first(std::min(kChecksumBlockBytes, file_bytes_ - offset));
    SPACE_TRY_VOID(PreadFull(fd_, part, offset), "read layer");
    return std::string_view(reinterpret_cast<const char*>(part.data()), part.size());
  }

 private:
  int fd_;
  uint64_t file_bytes_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kChecksumBlockBytes);
};

Result<uint64_t> LayerFileSize(int fd) {
  SPACE_TRY(const uint64_t bytes, FileSize(fd), "checksum layer");
  if (bytes > 2 * kMaxImageBytes) {
    return Fail(ErrorCode::kInvalidArgument, "file is larger than any layer");
  }
  return bytes;
}

Result<Sidecar> Parse(std::string_view bytes) {
  ByteReader in(bytes);
  Sidecar sidecar;
  SPACE_TRY(const auto magic, in.Get<uint64_t>(), "read checksums");
  SPACE_TRY(const auto version, in.Get<uint32_t>(), "read checksums");
  SPACE_TRY(const auto extents, in.Get<uint32_t>(), "read checksums");
  SPACE_TRY(sidecar.file_bytes, in.Get<uint64_t>(), "read checksums");
  if (magic != kMagic || version != kVersion) {
    return Fail(ErrorCode::kInvalidArgument, "not a checksum file, or of another version");
  }
  if (in.rest().size() < sizeof(uint32_t) ||
      Crc32c(bytes.substr(0, bytes.size() - sizeof(uint32_t))) !=
          *ByteReader(bytes.substr(bytes.size() - sizeof(uint32_t))).Get<uint32_t>()) {
    return Fail(ErrorCode::kInvalidArgument, "checksum file is damaged");
  }
  if (sidecar.file_bytes > 2 * kMaxImageBytes || extents > in.rest().size() / sizeof(Extent)) {
    return Fail(ErrorCode::kInvalidArgument, "checksum file has values out of range");
  }
  uint64_t end = 0;
  uint64_t total = 0;
  for (uint32_t at = 0; at < extents; ++at) {
    Extent& extent = sidecar.extents.emplace_back();
    SPACE_TRY(extent.first, in.Get<uint32_t>(), "read checksums");
    SPACE_TRY(extent.count, in.Get<uint32_t>(), "read checksums");
    if (extent.count == 0 || extent.first < end || extent.end() > BlockCount(sidecar.file_bytes)) {
      return Fail(ErrorCode::kInvalidArgument, "checksum file has an extent out of place");
    }
    end = extent.end();
    total += extent.count;
  }
  SPACE_TRY(sidecar.sums, in.GetRaw(total * sizeof(uint32_t)), "read checksums");
  SPACE_TRY_VOID(in.GetRaw(sizeof(uint32_t)), "read checksums");  // checked above
  SPACE_TRY_VOID(in.Finish(), "read checksums");
  return sidecar;
}

tl::unexpected<Error> Differs(uint64_t block) {
  return Fail(ErrorCode::kInvalidArgument, "layer is damaged",
              "block " + std::to_string(block) + " of 64 KiB");
}

// Data where the sidecar has a hole may only be zeros.
Result<void> CheckHole(int fd, BlockReader& reader, uint64_t from, uint64_t end,
                       uint64_t file_bytes) {
  while (from < end) {
    SPACE_TRY(const Extent data, NextData(fd, from, file_bytes), "verify layer");
    if (data.count == 0) {
      return {};
    }
    for (from = data.first; from < std::min(end, data.end()); ++from) {
      SPACE_TRY(const std::string_view bytes, reader.Read(from), "verify layer");
      if (bytes.find_first_not_of('\0') != std::string_view::npos) {
        return Differs(from);
      }
    }
  }
  return {};
}

}  // namespace

Result<std::string> ComputeChecksums(int fd) {
  SPACE_TRY(const uint64_t file_bytes, LayerFileSize(fd), "checksum layer");
  BlockReader reader(fd, file_bytes);
  std::vector<Extent> extents;
  ByteWriter sums;
  for (uint64_t block = 0;;) {
    SPACE_TRY(const Extent data, NextData(fd, block, file_bytes), "checksum layer");
    if (data.count == 0) {
      break;
    }
    for (block = data.first; block < data.end(); ++block) {
      SPACE_TRY(const std::string_view bytes, reader.Read(block), "checksum layer");
      sums.Put(Crc32c(bytes));
    }
    if (!extents.empty() && extents.back().end() == data.first) {
      extents.back().count += data.count;
    } else {
      extents.push_back(data);
    }
  }
  ByteWriter out;
  out.Put(kMagic);
  out.Put(kVersion);
  out.Put(static_cast<uint32_t>(extents.size()));
  out.Put(file_bytes);
  for (const Extent& extent : extents) {
    out.Put(extent.first);
    out.Put(extent.count);
  }
  out.PutRaw(sums.bytes());
  out.Put(Crc32c(out.bytes()));
  return std::move(out).Take();
}

Result<void> VerifyChecksums(int fd, std::string_view sidecar_bytes) {
  SPACE_TRY(const Sidecar sidecar, Parse(sidecar_bytes), "verify layer");
  SPACE_TRY(const uint64_t file_bytes, LayerFileSize(fd), "verify layer");
  if (file_bytes != sidecar.file_bytes) {
    return Fail(ErrorCode::kInvalidArgument, "layer has another size than its checksums say");
  }
  BlockReader reader(fd, file_bytes);
  ByteReader sums(sidecar.sums);
  uint64_t block = 0;
  for (const Extent& extent : sidecar.extents) {
    SPACE_TRY_VOID(CheckHole(fd, reader, block, extent.first, file_bytes), "verify layer");
    for (block = extent.first; block < extent.end(); ++block) {
      SPACE_TRY(const std::string_view bytes, reader.Read(block), "verify layer");
      SPACE_TRY(const auto expected, sums.Get<uint32_t>(), "verify layer");
      if (Crc32c(bytes) != expected) {
        return Differs(block);
      }
    }
  }
  return CheckHole(fd, reader, block, BlockCount(file_bytes), file_bytes);
}

}  // namespace space
