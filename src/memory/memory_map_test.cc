#include "memory/memory_map.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace space {
namespace {

Result<MemoryMap> Make(const std::vector<MemoryExtent>& extents) {
  return MemoryMap::Create(extents, 100, 3);
}

TEST(MemoryMap, Create_RefusesWhatIsNotAMap) {
  EXPECT_TRUE(Make({{0, 10, 0}, {10, 5, 1}, {99, 1, 2}}).has_value());
  EXPECT_FALSE(Make({{0, 0, 0}}).has_value());
  EXPECT_FALSE(Make({{0, 101, 0}}).has_value());
  EXPECT_FALSE(Make({{99, 2, 0}}).has_value());
  EXPECT_FALSE(Make({{~0ULL, 2, 0}}).has_value());
  EXPECT_FALSE(Make({{1, ~0ULL, 0}}).has_value());
  EXPECT_FALSE(Make({{0, 10, 3}}).has_value());
  EXPECT_FALSE(Make({{0, 10, 0}, {9, 1, 1}}).has_value());
  EXPECT_FALSE(Make({{10, 1, 0}, {0, 1, 1}}).has_value());
}

TEST(MemoryMap, Create_JoinsExtentsThatContinueEachOther) {
  const auto map = Make({{0, 10, 0}, {10, 5, 0}, {15, 1, 1}, {17, 1, 1}});
  ASSERT_TRUE(map.has_value());
  const std::vector<MemoryExtent> joined = {{0, 15, 0}, {15, 1, 1}, {17, 1, 1}};
  EXPECT_EQ(map->extents(), joined);
}

TEST(MemoryMap, Create_RefusesMoreThanTheLimit) {
  std::vector<MemoryExtent> extents;
  for (uint64_t page = 0; page <= MemoryMap::kMaxExtents; ++page) {
    extents.push_back({2 * page, 1, 0});
  }
  EXPECT_FALSE(MemoryMap::Create(extents, 10000, 1).has_value());
  extents.pop_back();
  EXPECT_TRUE(MemoryMap::Create(extents, 10000, 1).has_value());
}

TEST(MemoryMap, Decode_TakesWhatEncodeWroteAndNothingElse) {
  const MemoryMap map = *Make({{0, 10, 0}, {10, 5, 1}, {99, 1, 2}});
  const std::string bytes = map.Encode();
  const auto again = MemoryMap::Decode(bytes, 100, 3);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, map);
  EXPECT_FALSE(MemoryMap::Decode(bytes, 99, 3).has_value());
  EXPECT_FALSE(MemoryMap::Decode(bytes, 100, 2).has_value());
  EXPECT_FALSE(MemoryMap::Decode(bytes + "x", 100, 3).has_value());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(MemoryMap::Decode(bytes.substr(0, length), 100, 3).has_value()) << length;
  }
}

TEST(Overlay, MatchesAPagewiseModel) {
  std::mt19937 random(1);  // NOLINT: the same sequence each time
  for (int round = 0; round < 300; ++round) {
    constexpr uint64_t kPages = 60;
    constexpr uint32_t kLayers = 3;
    const auto kept = static_cast<uint32_t>(random() % (kLayers + 1));
    std::vector<MemoryExtent> extents;
    std::map<uint64_t, uint32_t> model;
    for (uint64_t page = random() % 5; page < kPages;) {
      const uint64_t count = std::min<uint64_t>(1 + random() % 9, kPages - page);
      const auto layer = static_cast<uint32_t>(random() % kLayers);
      extents.push_back({page, count, layer});
      for (uint64_t at = page; at < page + count && layer < kept; ++at) {
        model[at] = layer;
      }
      page += count + random() % 3;
    }
    std::vector<PageRange> runs;
    for (uint64_t page = random() % 12; page < kPages; page += 1 + random() % 12) {
      runs.push_back({page, std::min<uint64_t>(1 + random() % 12, kPages - page)});
      for (uint64_t at = page; at < runs.back().end(); ++at) {
        model[at] = kept;
      }
      page = runs.back().end();
    }
    const MemoryMap below = *MemoryMap::Create(extents, kPages, kLayers);
    const std::vector<MemoryExtent> over = Overlay(below, runs, kept);
    const auto checked = MemoryMap::Create(over, kPages, kept + 1);
    ASSERT_TRUE(checked.has_value()) << checked.error().message();
    EXPECT_EQ(checked->extents(), over);
    std::map<uint64_t, uint32_t> got;
    for (const MemoryExtent& extent : over) {
      for (uint64_t at = extent.first_page; at < extent.end(); ++at) {
        got[at] = extent.layer;
      }
    }
    ASSERT_EQ(got, model) << round;
  }
}

}  // namespace
}  // namespace space
