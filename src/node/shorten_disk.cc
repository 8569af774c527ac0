// A disk whose chain has become long gets one layer for all frozen ones. The VMs that have them
// open keep them; whoever starts from now on opens less.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/log.h"
#include "layer/merge.h"
#include "node/blocking.h"
#include "node/node.h"

namespace space {
namespace {

// Sparse layers below the top. The VMM takes 64 of a disk; each costs a descriptor and memory.
constexpr size_t kLongChain = 12;

Result<void> MergeAndSync(const std::vector<UniqueFd>& layers, UniqueFd out) {
  std::vector<int> fds;
  for (const UniqueFd& layer : layers) {
    fds.push_back(layer.get());
  }
  SPACE_TRY(const UniqueFd same, out.Duplicate(), "merge");
  SPACE_TRY_VOID(MergeLayers(fds, std::move(out), MergeBelow::kLayers), "merge");
  if (::fdatasync(same.get()) != 0) {
    return FailErrno("sync merged layer");
  }
  return {};
}

}  // namespace

// `sandbox` may be null: nobody runs on this chain. On failure all stays as it was.
asio::awaitable<void> Node::ShortenDisk(SandboxPointer sandbox, ImagePointer image) {
  if (image->chains.root.size() <= kLongChain) {
    co_return;
  }
  const auto merged = co_await MergeRoot(image);
  if (!merged) {
    log::Warn("disk_not_merged", {{"error", merged.error().message()}});
    co_return;
  }
  std::vector<LayerPointer>& frozen = image->chains.root;
  if (sandbox != nullptr && sandbox->chains.root.size() > frozen.size()) {
    std::vector<LayerPointer>& live = sandbox->chains.root;
    live.erase(live.begin() + 1, live.begin() + static_cast<std::ptrdiff_t>(frozen.size()));
    live.insert(live.begin() + 1, *merged);
  }
  image->replaced.assign(frozen.begin() + 1, frozen.end());
  frozen.erase(frozen.begin() + 1, frozen.end());
  frozen.push_back(*merged);
}

asio::awaitable<Result<LayerPointer>> Node::MergeRoot(ImagePointer image) {
  const std::vector<LayerPointer>& root = image->chains.root;
  SPACE_CO_TRY(NewLayer merged, layers_->CreateLike(*root.back()), "merge disk layers");
  const auto opened = std::make_shared<std::vector<UniqueFd>>();
  for (size_t at = 1; at < root.size(); ++at) {
    SPACE_CO_TRY(UniqueFd fd, layers_->Open(*root[at]), "merge disk layers");
    opened->push_back(std::move(fd));
  }
  const auto out = std::make_shared<UniqueFd>(std::move(merged.fd));
  auto work = [opened, out]() -> Result<void> { return MergeAndSync(*opened, std::move(*out)); };
  SPACE_CO_TRY_VOID(co_await RunBlocking(disk_work_, std::move(work)), "merge disk layers");
  SPACE_CO_TRY_VOID(layers_->Freeze(*merged.layer), "merge disk layers");
  co_return merged.layer;
}

}  // namespace space
