#include "layer/merge.h"

#include <unistd.h>

#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/units.h"
#include "layer/layered_image.h"

namespace space {
namespace {

constexpr uint64_t kPages = 17000;  // two map blocks, many chunks of the index

UniqueFd SparseFile(uint64_t pages) {
  UniqueFd fd = *CreateMemfd("sparse");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), pages * kPageBytes).has_value());
  return fd;
}

Result<LayeredImage> OpenChain(const std::vector<const UniqueFd*>& files, bool is_writable) {
  std::vector<LayerSource> layers;
  for (size_t at = 0; at < files.size(); ++at) {
    layers.push_back(
        {*files[at]->Duplicate(), LayerFormat::kSparse, is_writable && at + 1 == files.size()});
  }
  return LayeredImage::Open(std::move(layers), kPages * kPageBytes);
}

std::vector<int> Numbers(const std::vector<UniqueFd>& files, size_t first, size_t count) {
  std::vector<int> fds;
  for (size_t at = first; at < first + count; ++at) {
    fds.push_back(files[at].get());
  }
  return fds;
}

std::vector<const UniqueFd*> Pointers(const std::vector<UniqueFd>& files) {
  std::vector<const UniqueFd*> pointers;
  for (const UniqueFd& file : files) {
    pointers.push_back(&file);
  }
  return pointers;
}

// What each page is filled with; 0 for pages that nothing or a tombstone was written to.
using Model = std::vector<uint8_t>;

void ExpectShows(const LayeredImage& image, const Model& model) {
  std::vector<std::byte> all(kPages * kPageBytes);
  ASSERT_TRUE(image.Read({0, kPages}, all).has_value());
  for (uint64_t page = 0; page < kPages; ++page) {
    const auto bytes = std::span(all).subspan(page * kPageBytes, kPageBytes);
    const auto expected = static_cast<std::byte>(model[page]);
    ASSERT_TRUE(bytes.front() == expected && bytes.back() == expected) << page;
  }
}

// A chain of random layers: written, discarded and frozen in turn.
std::vector<UniqueFd> RandomChain(size_t length, std::mt19937& random, Model& model) {
  std::vector<UniqueFd> files;
  files.push_back(SparseFile(kPages));
  auto image = OpenChain(Pointers(files), true);
  for (size_t place = 0; place < length; ++place) {
    for (int step = 0; step < 60; ++step) {
      const uint64_t first = random() % kPages;
      const uint64_t count =
          std::min<uint64_t>(1 + random() % (step == 0 ? 3000 : 9), kPages - first);
      const auto value = static_cast<uint8_t>(random() % 4 * 50);
      const std::vector<std::byte> bytes(count * kPageBytes, static_cast<std::byte>(value));
      EXPECT_TRUE(value == 0 ? image->Discard({first, count})
                             : image->Write({first, count}, bytes));
      std::fill_n(model.begin() + static_cast<ptrdiff_t>(first), count, value);
    }
    if (place + 1 < length) {
      files.push_back(SparseFile(kPages));
      EXPECT_TRUE(image->Freeze(*files.back().Duplicate()).has_value());
    }
  }
  ExpectShows(*image, model);
  EXPECT_TRUE(image->Flush());
  return files;
}

TEST(MergeLayers, ShowsTheSameImageWithFewerLayers) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  for (int round = 0; round < 3; ++round) {
    Model model(kPages);
    std::vector<UniqueFd> files = RandomChain(6, random, model);
    const size_t first = random() % 4;
    const size_t count = 2 + random() % (5 - first);
    UniqueFd merged = SparseFile(kPages);
    const auto result = MergeLayers(Numbers(files, first, count), *merged.Duplicate(),
                                    first == 0 ? MergeBelow::kNothing : MergeBelow::kLayers);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    files.erase(files.begin() + static_cast<ptrdiff_t>(first),
                files.begin() + static_cast<ptrdiff_t>(first + count - 1));
    files[first] = std::move(merged);
    const auto image = OpenChain(Pointers(files), false);
    ASSERT_TRUE(image.has_value()) << image.error().message();
    ExpectShows(*image, model);
  }
}

TEST(MergeLayers, KeepsTombstonesUnlessNothingLiesBelow) {
  const UniqueFd layer = SparseFile(kPages);
  ASSERT_TRUE(OpenChain({&layer}, true)->Discard({7, 3}).has_value());
  const int fd = layer.get();
  const UniqueFd kept = SparseFile(kPages), dropped = SparseFile(kPages);
  ASSERT_TRUE(MergeLayers({&fd, 1}, *kept.Duplicate(), MergeBelow::kLayers).has_value());
  ASSERT_TRUE(MergeLayers({&fd, 1}, *dropped.Duplicate(), MergeBelow::kNothing).has_value());
  EXPECT_EQ(SparseLayer::Open(*kept.Duplicate())->StateOf(9), PageState::kZero);
  EXPECT_TRUE(SparseLayer::Open(*dropped.Duplicate())->is_empty());
}

TEST(MergeLayers, TakesShorterLayersBelowAndRefusesLongerOnes) {
  const UniqueFd small = SparseFile(10), big = SparseFile(kPages);
  {
    std::vector<LayerSource> one;
    one.push_back({*small.Duplicate(), LayerFormat::kSparse, true});
    auto image = LayeredImage::Open(std::move(one), 10 * kPageBytes);
    ASSERT_TRUE(image->Write({9, 1}, std::vector<std::byte>(kPageBytes, std::byte{3})).has_value());
  }
  const std::vector<int> fds = {small.get(), big.get()};
  const UniqueFd merged = SparseFile(kPages);
  ASSERT_TRUE(MergeLayers(fds, *merged.Duplicate(), MergeBelow::kNothing).has_value());
  EXPECT_EQ(SparseLayer::Open(*merged.Duplicate())->StateOf(9), PageState::kPresent);
  const auto refused = MergeLayers(fds, SparseFile(10), MergeBelow::kNothing);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find("layer 1"), std::string::npos);
}

TEST(MergeLayers, RefusesNothingForeignFilesAndAUsedTarget) {
  const UniqueFd layer = SparseFile(kPages), foreign = *CreateMemfd("x"), used = SparseFile(kPages);
  ASSERT_TRUE(OpenChain({&used}, true)->Discard({7, 3}).has_value());
  const int fd = layer.get();
  const int bad = foreign.get();
  EXPECT_FALSE(MergeLayers({}, SparseFile(kPages), MergeBelow::kLayers).has_value());
  EXPECT_FALSE(MergeLayers({&bad, 1}, SparseFile(kPages), MergeBelow::kLayers).has_value());
  EXPECT_FALSE(MergeLayers({&fd, 1}, *used.Duplicate(), MergeBelow::kLayers).has_value());
  EXPECT_TRUE(MergeLayers({&fd, 1}, SparseFile(kPages), MergeBelow::kLayers).has_value());
}

TEST(LayeredImage, RefusesMoreLayersThanTheIndexCanName) {
  std::vector<UniqueFd> files;
  for (size_t place = 0; place < PageIndex::kMaxLayers; ++place) {
    files.push_back(SparseFile(kPages));
  }
  EXPECT_TRUE(OpenChain(Pointers(files), false).has_value());
  auto image = OpenChain(Pointers(files), true);
  ASSERT_TRUE(image.has_value());
  ASSERT_TRUE(image->Write({1, 1}, std::vector<std::byte>(kPageBytes, std::byte{3})).has_value());
  std::vector<std::byte> page(kPageBytes);
  ASSERT_TRUE(image->Read({1, 1}, page).has_value());
  EXPECT_EQ(page[0], std::byte{3});
  EXPECT_EQ(image->Freeze(SparseFile(kPages)).error().code(), ErrorCode::kExhausted);
  files.push_back(SparseFile(kPages));
  EXPECT_FALSE(OpenChain(Pointers(files), false).has_value());
}

}  // namespace
}  // namespace space
