// A sparse layer file of foreign bytes. Checksums are mended for half of the inputs, so that what
// lies behind them is reached too.
#include <cstring>
#include <vector>

#include "base/units.h"
#include "input.h"
#include "layer/layered_image.h"
#include "layer/merge.h"
#include "state/crc32c.h"

namespace {

using namespace space;

std::string_view Text(const std::vector<std::byte>& bytes, size_t at, size_t length) {
  return {reinterpret_cast<const char*>(bytes.data()) + at, length};
}

void Mend(std::vector<std::byte>& file) {
  constexpr size_t kHeaderCrc = 4092;
  if (file.size() < kPageBytes) {
    return;
  }
  const uint32_t header = Crc32c(Text(file, 0, kHeaderCrc));
  std::memcpy(file.data() + kHeaderCrc, &header, sizeof(header));
  for (size_t block = kPageBytes; block + kPageBytes <= file.size(); block += kPageBytes) {
    const uint32_t crc = Crc32c(Text(file, block + 4, kPageBytes - 4));
    std::memcpy(file.data() + block, &crc, sizeof(crc));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const auto flags = input.Take<uint8_t>();
  // A valid header to start from, which the input may then overwrite in places.
  UniqueFd fd = *CreateMemfd("layer");
  std::vector<std::byte> file(kPageBytes);
  if ((flags & 2) != 0) {
    static_cast<void>(CreateSparseLayer(fd.get(), 3 * kPageBytes));
    static_cast<void>(PreadFull(fd.get(), file, 0));
    file.resize(5 * kPageBytes);
  }
  while (!input.is_empty()) {
    const auto at = input.Take<uint16_t>() % (6 * kPageBytes);
    const auto bytes = input.TakeBytes(input.Take<uint8_t>());
    file.resize(std::max(file.size(), at + bytes.size()));
    std::ranges::copy(bytes, file.begin() + static_cast<ptrdiff_t>(at));
  }
  if (flags % 2 == 1) {
    Mend(file);
  }
  static_cast<void>(PwriteFull(fd.get(), file, 0));
  const UniqueFd merged = *CreateMemfd("merged");
  static_cast<void>(CreateSparseLayer(merged.get(), 3 * kPageBytes));
  const int from = fd.get();
  static_cast<void>(MergeLayers({&from, 1}, *merged.Duplicate(), MergeBelow::kLayers));
  std::vector<LayerSource> layers;
  layers.push_back({std::move(fd), LayerFormat::kSparse, (flags & 4) != 0});
  auto image = LayeredImage::Open(std::move(layers), 3 * kPageBytes);
  if (image.has_value()) {
    std::vector<std::byte> pages(3 * kPageBytes);
    static_cast<void>(image->Read({0, 3}, pages));
    static_cast<void>(image->Write({1, 1}, std::span(pages).first(kPageBytes)));
    static_cast<void>(image->Discard({0, 1}));
    static_cast<void>(image->Flush());
    UniqueFd top = *CreateMemfd("top");
    static_cast<void>(CreateSparseLayer(top.get(), 3 * kPageBytes));
    static_cast<void>(image->Freeze(std::move(top)));
    static_cast<void>(image->Write({0, 1}, std::span(pages).first(kPageBytes)));
  }
  return 0;
}
