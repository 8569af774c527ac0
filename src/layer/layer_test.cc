#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "base/units.h"
#include "layer/layered_image.h"

namespace space {
namespace {

using Page = std::array<std::byte, kPageBytes>;

Page Filled(int value) {
  Page page;
  page.fill(static_cast<std::byte>(value));
  return page;
}

UniqueFd RawFile(const std::vector<int>& pages, size_t cut = 0) {
  UniqueFd fd = *CreateMemfd("raw");
  for (size_t at = 0; at < pages.size(); ++at) {
    EXPECT_TRUE(PwriteFull(fd.get(), Filled(pages[at]), at * kPageBytes).has_value());
  }
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(pages.size() * kPageBytes - cut)), 0);
  return fd;
}

UniqueFd SparseFile(uint64_t pages) {
  UniqueFd fd = *CreateMemfd("sparse");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), pages * kPageBytes).has_value());
  return fd;
}

// A chain over copies of the descriptors, the last one writable.
Result<LayeredImage> OpenChain(const std::vector<const UniqueFd*>& files, uint64_t pages,
                               bool raw_bottom = true, bool writable = true) {
  std::vector<LayerSource> layers;
  for (size_t at = 0; at < files.size(); ++at) {
    const bool is_raw = raw_bottom && at == 0;
    layers.push_back({*files[at]->Duplicate(), is_raw ? LayerFormat::kRaw : LayerFormat::kSparse,
                      writable && !is_raw && at + 1 == files.size()});
  }
  return LayeredImage::Open(std::move(layers), pages * kPageBytes);
}

int FirstByte(const LayeredImage& image, uint64_t page) {
  Page got = Filled(0xee);
  EXPECT_TRUE(image.Read({page, 1}, got).has_value());
  EXPECT_TRUE(std::ranges::all_of(got, [&](std::byte byte) { return byte == got[0]; })) << page;
  return static_cast<int>(got[0]);
}

TEST(LayeredImage, Read_TakesEachPageFromTheTopmostLayerThatHasIt) {
  const UniqueFd base = RawFile({1, 2, 3, 4});
  const UniqueFd middle = SparseFile(4);
  const UniqueFd top = SparseFile(6);
  {
    auto image = OpenChain({&base, &middle}, 4);
    ASSERT_TRUE(image->Write({1, 2}, std::vector<std::byte>(2 * kPageBytes, std::byte{9})));
  }
  auto image = OpenChain({&base, &middle, &top}, 6);
  ASSERT_TRUE(image.has_value()) << image.error().message();
  ASSERT_TRUE(image->Write({2, 1}, Filled(7)));
  EXPECT_EQ(FirstByte(*image, 0), 1);
  EXPECT_EQ(FirstByte(*image, 1), 9);
  EXPECT_EQ(FirstByte(*image, 2), 7);
  EXPECT_EQ(FirstByte(*image, 3), 4);
  EXPECT_EQ(FirstByte(*image, 4), 0);
  EXPECT_EQ(FirstByte(*image, 5), 0);
}

TEST(LayeredImage, Read_CrossesLayersAndBuffersOfAnyLength) {
  const UniqueFd base = RawFile({1, 2, 3});
  const UniqueFd top = SparseFile(4);
  auto image = OpenChain({&base, &top}, 4);
  ASSERT_TRUE(image->Write({1, 1}, Filled(9)));
  std::vector<std::byte> whole(4 * kPageBytes);
  const std::span all(whole);
  const std::array<std::span<std::byte>, 5> parts = {all.first(1), all.subspan(1, 5000),
                                                     all.subspan(5001, 0), all.subspan(5001, 4096),
                                                     all.subspan(9097)};
  ASSERT_TRUE(image->Read({0, 4}, parts).has_value());
  EXPECT_EQ(whole[0], std::byte{1});
  EXPECT_EQ(whole[4095], std::byte{1});
  EXPECT_EQ(whole[4096], std::byte{9});
  EXPECT_EQ(whole[8191], std::byte{9});
  EXPECT_EQ(whole[8192], std::byte{3});
  EXPECT_EQ(whole[12288], std::byte{0});
}

TEST(LayeredImage, Read_FillsAnOddTailOfTheRawLayerWithZeros) {
  const UniqueFd base = RawFile({1, 2}, 4000);
  const UniqueFd top = SparseFile(2);
  const auto image = OpenChain({&base, &top}, 2);
  Page got = Filled(0xee);
  ASSERT_TRUE(image->Read({1, 1}, got).has_value());
  EXPECT_EQ(got[95], std::byte{2});
  EXPECT_EQ(got[96], std::byte{0});
  EXPECT_EQ(got[4095], std::byte{0});
}

TEST(LayeredImage, Discard_HidesOlderDataAndFreesTheTop) {
  const UniqueFd base = RawFile({1, 2});
  const UniqueFd top = SparseFile(2);
  auto image = OpenChain({&base, &top}, 2);
  ASSERT_TRUE(image->Write({0, 2}, std::vector<std::byte>(2 * kPageBytes, std::byte{9})));
  struct stat before {};
  ASSERT_EQ(::fstat(top.get(), &before), 0);
  ASSERT_TRUE(image->Discard({0, 1}));
  struct stat after {};
  ASSERT_EQ(::fstat(top.get(), &after), 0);
  EXPECT_LT(after.st_blocks, before.st_blocks);
  EXPECT_EQ(FirstByte(*image, 0), 0);
  EXPECT_EQ(FirstByte(*image, 1), 9);
}

TEST(LayeredImage, Flush_KeepsPagesAndTombstonesForALaterOpen) {
  const UniqueFd base = RawFile({1, 2, 3});
  const UniqueFd top = SparseFile(3);
  auto image = OpenChain({&base, &top}, 3);
  ASSERT_TRUE(image->Write({0, 1}, Filled(9)));
  ASSERT_TRUE(image->WriteZeroes({1, 1}));
  ASSERT_TRUE(image->Flush());
  const auto later = OpenChain({&base, &top}, 3, true, false);
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(FirstByte(*later, 0), 9);
  EXPECT_EQ(FirstByte(*later, 1), 0);
  EXPECT_EQ(FirstByte(*later, 2), 3);
}

TEST(LayeredImage, Freeze_EndsTheTopAndWritesGoToTheNextOne) {
  const UniqueFd base = RawFile({1, 2, 3});
  const UniqueFd top = SparseFile(3), next = SparseFile(3);
  auto image = OpenChain({&base, &top}, 3);
  ASSERT_TRUE(image->Write({0, 1}, Filled(9)));
  ASSERT_TRUE(image->WriteZeroes({1, 1}));
  const auto frozen = image->Freeze(*next.Duplicate());
  ASSERT_TRUE(frozen.has_value()) << frozen.error().message();
  EXPECT_EQ(image->layer_ids().size(), 2U);
  ASSERT_TRUE(image->Write({0, 1}, Filled(8)));
  ASSERT_TRUE(image->Write({1, 1}, Filled(7)));
  EXPECT_EQ(FirstByte(*image, 0), 8);
  EXPECT_EQ(FirstByte(*image, 1), 7);
  EXPECT_EQ(FirstByte(*image, 2), 3);
  const auto old = OpenChain({&base, &top}, 3, true, false);
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(FirstByte(*old, 0), 9);
  EXPECT_EQ(FirstByte(*old, 1), 0);
  ASSERT_TRUE(image->Flush());
  const auto later = OpenChain({&base, &top, &next}, 3, true, false);
  ASSERT_TRUE(later.has_value());
  EXPECT_EQ(FirstByte(*later, 0), 8);
  EXPECT_EQ(FirstByte(*later, 1), 7);
}

TEST(LayeredImage, Freeze_RefusesAWrongNewTopAndGoesOnAsBefore) {
  const UniqueFd base = RawFile({1, 2, 3});
  const UniqueFd top = SparseFile(3), used = SparseFile(3), small = SparseFile(2);
  ASSERT_TRUE(OpenChain({&used}, 3, false)->Write({0, 1}, Filled(1)).has_value());
  auto image = OpenChain({&base, &top}, 3);
  EXPECT_FALSE(image->Freeze(*used.Duplicate()).has_value());
  EXPECT_FALSE(image->Freeze(*small.Duplicate()).has_value());
  EXPECT_FALSE(image->Freeze(*base.Duplicate()).has_value());
  ASSERT_TRUE(image->Write({0, 1}, Filled(9)));
  ASSERT_TRUE(image->Flush());
  EXPECT_EQ(FirstByte(*OpenChain({&base, &top}, 3, true, false), 0), 9);
  auto read_only = OpenChain({&base, &top}, 3, true, false);
  EXPECT_EQ(read_only->Freeze(SparseFile(3)).error().code(), ErrorCode::kPermissionDenied);
}

TEST(LayeredImage, ReadOnly_RefusesChanges) {
  const UniqueFd base = RawFile({1});
  auto image = OpenChain({&base}, 1);
  EXPECT_EQ(image->Write({0, 1}, Filled(9)).error().code(), ErrorCode::kPermissionDenied);
  EXPECT_FALSE(image->Discard({0, 1}).has_value());
  EXPECT_TRUE(image->Flush().has_value());
}

TEST(LayeredImage, Ranges_OutsideTheImageAreRefused) {
  const UniqueFd top = SparseFile(2);
  auto image = OpenChain({&top}, 2, false);
  std::vector<std::byte> two(2 * kPageBytes);
  EXPECT_TRUE(image->Read({0, 2}, two).has_value());
  EXPECT_FALSE(image->Read({1, 2}, two).has_value());
  EXPECT_FALSE(image->Read({~0ULL, 2}, two).has_value());
  EXPECT_FALSE(image->Read({0, 1}, two).has_value());
  EXPECT_FALSE(image->Write({2, 1}, Filled(1)).has_value());
  EXPECT_FALSE(image->Discard({1, ~0ULL}).has_value());
}

TEST(LayeredImage, Open_RefusesWrongChains) {
  const UniqueFd base = RawFile({1, 2});
  const UniqueFd top = SparseFile(2);
  EXPECT_FALSE(LayeredImage::Open({}, 4096).has_value());
  EXPECT_FALSE(OpenChain({&top, &base}, 2, false).has_value());  // raw opened as sparse
  EXPECT_FALSE(OpenChain({&base, &top}, 1).has_value());         // smaller than its layers
  EXPECT_FALSE(OpenChain({&base, &top}, 3).has_value());         // top of another size
  std::vector<LayerSource> raw_on_top;
  raw_on_top.push_back({*top.Duplicate(), LayerFormat::kSparse, false});
  raw_on_top.push_back({*base.Duplicate(), LayerFormat::kRaw, false});
  EXPECT_FALSE(LayeredImage::Open(std::move(raw_on_top), 8192).has_value());
  std::vector<LayerSource> writable_raw;
  writable_raw.push_back({*base.Duplicate(), LayerFormat::kRaw, true});
  EXPECT_FALSE(LayeredImage::Open(std::move(writable_raw), 8192).has_value());
}

TEST(SparseLayer, Open_RefusesEveryDamagedHeaderByte) {
  const UniqueFd top = SparseFile(2);
  std::array<std::byte, 1> byte;
  for (const uint64_t at : {0, 8, 12, 16, 32, 40, 44, 2000, 4091, 4092, 4095}) {
    ASSERT_TRUE(PreadFull(top.get(), byte, at).has_value());
    byte[0] ^= std::byte{1};
    ASSERT_TRUE(PwriteFull(top.get(), byte, at).has_value());
    EXPECT_FALSE(OpenChain({&top}, 2, false).has_value()) << at;
    byte[0] ^= std::byte{1};
    ASSERT_TRUE(PwriteFull(top.get(), byte, at).has_value());
  }
  EXPECT_TRUE(OpenChain({&top}, 2, false).has_value());
}

TEST(SparseLayer, Open_RefusesADamagedOrCutMap) {
  const UniqueFd top = SparseFile(2);
  ASSERT_TRUE(OpenChain({&top}, 2, false)->Write({0, 1}, Filled(1)).has_value());
  std::array<std::byte, 1> byte;
  for (const uint64_t at : {0, 4, 8, 100}) {
    ASSERT_TRUE(PreadFull(top.get(), byte, 3 * kPageBytes + at).has_value());
    byte[0] ^= std::byte{2};
    ASSERT_TRUE(PwriteFull(top.get(), byte, 3 * kPageBytes + at).has_value());
    EXPECT_FALSE(OpenChain({&top}, 2, false).has_value()) << at;
    byte[0] ^= std::byte{2};
    ASSERT_TRUE(PwriteFull(top.get(), byte, 3 * kPageBytes + at).has_value());
  }
  ASSERT_EQ(::ftruncate(top.get(), 3 * 4096 + 100), 0);
  EXPECT_FALSE(OpenChain({&top}, 2, false).has_value());
}

TEST(SparseLayer, Create_RefusesOddSizesAndUsedFiles) {
  const UniqueFd fd = *CreateMemfd("sparse");
  EXPECT_FALSE(CreateSparseLayer(fd.get(), 0).has_value());
  EXPECT_FALSE(CreateSparseLayer(fd.get(), 4097).has_value());
  EXPECT_FALSE(CreateSparseLayer(fd.get(), kMaxImageBytes + 4096).has_value());
  EXPECT_TRUE(CreateSparseLayer(fd.get(), kMaxImageBytes).has_value());
  EXPECT_EQ(CreateSparseLayer(fd.get(), 4096).error().code(), ErrorCode::kConflict);
}

TEST(LayeredImage, ManyPages_MatchAModelAcrossMapBlocks) {
  constexpr uint64_t kPages = 40000;  // three map blocks
  const UniqueFd bottom = SparseFile(kPages);
  const UniqueFd top = SparseFile(kPages);
  std::map<uint64_t, int> model;
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  for (const UniqueFd* layer : {&bottom, &top}) {
    const bool is_bottom = layer == &bottom;
    auto image =
        is_bottom ? OpenChain({&bottom}, kPages, false) : OpenChain({&bottom, &top}, kPages, false);
    for (int step = 0; step < 300; ++step) {
      const uint64_t page = random() % kPages;
      const int value = static_cast<int>(random() % 200);
      ASSERT_TRUE(value == 0 ? image->Discard({page, 1}) : image->Write({page, 1}, Filled(value)));
      model[page] = value;
    }
  }
  const auto image = OpenChain({&bottom, &top}, kPages, false, false);
  ASSERT_TRUE(image.has_value());
  for (const auto& [page, value] : model) {
    EXPECT_EQ(FirstByte(*image, page), value) << page;
  }
}

}  // namespace
}  // namespace space
