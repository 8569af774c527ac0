#include "memory/working_set.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/units.h"
#include "layer/sparse_layer.h"

namespace space {
namespace {

WorkingSet Sample() {
  PageBitmap dirty(1000), clean(1000);
  clean.Set({0, 10});
  clean.Set({20, 10});   // joined with those before it
  clean.Set({100, 10});  // cut by what was written
  dirty.Set({110, 5});
  clean.Set({115, 5});
  dirty.Set({200, 1});
  dirty.Set({202, 1});  // never joined
  dirty.Set({999, 1});
  return WorkingSet::Record(dirty, clean);
}

TEST(WorkingSet, Record_JoinsReadGapsButNeverWrittenPages) {
  const std::vector<std::pair<PageRange, bool>> expected = {
      {{0, 30}, false}, {{100, 10}, false}, {{110, 5}, true}, {{115, 5}, false},
      {{200, 1}, true}, {{202, 1}, true},   {{999, 1}, true}};
  std::vector<std::pair<PageRange, bool>> got;
  for (const WorkingSet::Range& range : Sample().ranges) {
    got.emplace_back(range.pages, range.is_written);
  }
  EXPECT_EQ(got, expected);
}

TEST(WorkingSet, Record_KeepsTheLongestRangesWhenThereAreTooMany) {
  PageBitmap dirty(400000);
  for (uint64_t page = 0; page + 4 < 400000; page += 4) {
    dirty.Set({page, page % 8 == 0 ? 1ULL : 2ULL});
  }
  const WorkingSet set = WorkingSet::Record(dirty, PageBitmap(400000));
  EXPECT_EQ(set.ranges.size(), WorkingSet::kMaxRanges);
  const auto longer = std::ranges::count_if(
      set.ranges, [](const WorkingSet::Range& range) { return range.pages.count == 2; });
  EXPECT_EQ(longer, 49999);
  EXPECT_TRUE(WorkingSet::Decode(set.Encode(), 400000).has_value());
}

TEST(WorkingSet, Decode_RefusesEveryDamagedByteAndCut) {
  const std::string bytes = Sample().Encode();
  const auto again = WorkingSet::Decode(bytes, 1000);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->Encode(), bytes);
  EXPECT_FALSE(WorkingSet::Decode(bytes, 1001).has_value());
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(WorkingSet::Decode(damaged, 1000).has_value()) << at;
    EXPECT_FALSE(WorkingSet::Decode(bytes.substr(0, at), 1000).has_value()) << at;
  }
}

TEST(WorkingSet, Decode_RefusesRangesOutOfPlace) {
  const auto decode = [](std::vector<WorkingSet::Range> ranges) {
    return WorkingSet::Decode(WorkingSet{1000, std::move(ranges)}.Encode(), 1000).has_value();
  };
  EXPECT_TRUE(decode({{{0, 1000}, false}}));
  EXPECT_FALSE(decode({{{0, 1001}, false}}));
  EXPECT_FALSE(decode({{{0, 0}, false}}));
  EXPECT_FALSE(decode({{{5, 5}, false}, {{9, 1}, true}}));
  EXPECT_FALSE(decode({{{5, 5}, false}, {{1, 1}, true}}));
}

TEST(Populate, MakesWhatWasRecordedPresentAndNothingElseDirty) {
  const UniqueFd layer = *CreateMemfd("layer");
  ASSERT_TRUE(CreateSparseLayer(layer.get(), MiB(4)).has_value());
  ASSERT_TRUE(PwriteFull(layer.get(), std::vector<std::byte>(MiB(4), std::byte{3}), kPageBytes)
                  .has_value());
  const int fd = layer.get();
  const MemoryMap map = *MemoryMap::Create({{{0, 1000, 0}}}, 1024, 1);
  const auto memory = GuestMemory::Map(MiB(4), {&fd, 1}, map);
  ASSERT_TRUE(memory.has_value());
  PageBitmap dirty(1024), clean(1024);
  clean.Set({100, 200});
  dirty.Set({300, 7});
  const auto populated = Populate(WorkingSet::Record(dirty, clean), *memory);
  ASSERT_TRUE(populated.has_value()) << populated.error().message();
  auto scan = PageScan::Open();
  ASSERT_TRUE(scan->Scan(*memory).has_value());
  EXPECT_EQ(scan->dirty().Count(), 7U);
  EXPECT_EQ(scan->dirty().CountIn({300, 7}), 7U);
  EXPECT_EQ(scan->clean().CountIn({100, 200}), 200U);
  EXPECT_EQ(memory->flat()[300 * kPageBytes], std::byte{3});
}

TEST(Populate, RefusesASetOfAnotherMemory) {
  const auto memory = GuestMemory::Create(MiB(4));
  EXPECT_FALSE(Populate(Sample(), *memory).has_value());
}

}  // namespace
}  // namespace space
