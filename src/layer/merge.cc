#include "layer/merge.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "base/units.h"
#include "layer/page_index.h"

namespace space {
namespace {

Result<SparseLayer> OpenCopy(int fd, const std::string& name) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.valid()) {
    return FailErrno("duplicate descriptor of", name);
  }
  SPACE_TRY(SparseLayer layer, SparseLayer::Open(std::move(copy)), name);
  return layer;
}

Result<void> CopyByHand(int from, int to, uint64_t offset, uint64_t bytes) {
  std::vector<std::byte> buffer(std::min(bytes, KiB(256)));
  while (bytes > 0) {
    const auto part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), bytes));
    SPACE_TRY_VOID(PreadFull(from, part, offset), "copy pages");
    SPACE_TRY_VOID(PwriteFull(to, part, offset), "copy pages");
    offset += part.size();
    bytes -= part.size();
  }
  return {};
}

// Page n lies at the same offset in every sparse layer.
Result<void> CopyPages(int from, int to, PageRange pages) {
  auto from_offset = static_cast<off_t>(SparseLayer::FileOffset(pages.first));
  off_t to_offset = from_offset;
  uint64_t bytes = pages.count * kPageBytes;
  while (bytes > 0) {
    const ssize_t copied = ::copy_file_range(from, &from_offset, to, &to_offset, bytes, 0);
    if (copied < 0 && errno == EINTR) {
      continue;
    }
    if (copied < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)) {
      return FailErrno("copy pages");
    }
    if (copied <= 0) {  // not between these file systems
      return CopyByHand(from, to, static_cast<uint64_t>(to_offset), bytes);
    }
    bytes -= static_cast<uint64_t>(copied);
  }
  return {};
}

}  // namespace

Result<void> MergeLayers(std::span<const int> layer_fds, UniqueFd out, MergeBelow below) {
  if (layer_fds.empty() || layer_fds.size() > PageIndex::kMaxLayers) {
    return Fail(ErrorCode::kInvalidArgument, "merge of no or too many layers");
  }
  SPACE_TRY(SparseLayer merged, SparseLayer::Open(std::move(out)), "merge into");
  if (!merged.is_empty()) {
    return Fail(ErrorCode::kInvalidArgument, "layer to merge into is not empty");
  }
  PageIndex index(merged.page_count());
  for (size_t place = 0; place < layer_fds.size(); ++place) {
    const std::string name = "layer " + std::to_string(place);
    SPACE_TRY(const SparseLayer layer, OpenCopy(layer_fds[place], name), "merge");
    if (layer.page_count() > merged.page_count()) {
      return Fail(ErrorCode::kInvalidArgument, "layer is larger than the merged one", name);
    }
    index.Overlay(layer, static_cast<PageIndex::Source>(place + 1));
  }
  for (uint64_t page = 0; page < merged.page_count();) {
    const PageIndex::Run run = index.FindRun({page, merged.page_count() - page});
    if (run.source == PageIndex::kZeros) {
      if (below == MergeBelow::kLayers) {
        merged.Mark(page, run.count, PageState::kZero);
      }
    } else if (run.source != PageIndex::kBelow) {
      const size_t place = run.source - size_t{1};
      SPACE_TRY_VOID(CopyPages(layer_fds[place], merged.fd(), {page, run.count}),
                     "merge layer " + std::to_string(place));
      merged.Mark(page, run.count, PageState::kPresent);
    }
    page += run.count;
  }
  return merged.WriteMap();
}

}  // namespace space
