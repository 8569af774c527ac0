#include "memory/guest_memory.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace space {
namespace {

TEST(GuestMemory, Slice_RefusesWhatLeavesTheRegion) {
  const auto memory = GuestMemory::Create(MiB(1));
  ASSERT_TRUE(memory.has_value());
  EXPECT_TRUE(memory->Slice({0}, MiB(1)).has_value());
  EXPECT_FALSE(memory->Slice({0}, MiB(1) + 1).has_value());
  EXPECT_FALSE(memory->Slice({1}, MiB(1)).has_value());
  EXPECT_FALSE(memory->Slice({MiB(1)}, 1).has_value());
  EXPECT_FALSE(memory->Slice({0}, 0).has_value());
  EXPECT_FALSE(memory->Slice({~0ULL}, 2).has_value());
  EXPECT_FALSE(memory->Slice({~0ULL - 4095}, 4096).has_value());
}

TEST(GuestMemory, Create_PutsWhatIsAbove3GiBAt4GiB) {
  const auto memory = GuestMemory::Create(GiB(4));
  ASSERT_TRUE(memory.has_value());
  ASSERT_EQ(memory->regions().size(), 2U);
  EXPECT_TRUE(memory->Slice({GiB(4)}, GiB(1)).has_value());
  EXPECT_FALSE(memory->Slice({GiB(3)}, 1).has_value());
  EXPECT_FALSE(memory->Slice({GiB(3) - 1}, 2).has_value());
}

TEST(GuestMemory, Create_RefusesOddSizes) {
  EXPECT_FALSE(GuestMemory::Create(0).has_value());
  EXPECT_FALSE(GuestMemory::Create(4097).has_value());
}

TEST(GuestMemoryTest, Create_AlignsForHugePages) {
  const Result<GuestMemory> memory = GuestMemory::Create(MiB(66));
  ASSERT_TRUE(memory);
  const GuestMemory::Region& low = memory->regions().front();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(low.bytes.data()) % MiB(2), 0u);
  EXPECT_EQ(low.bytes.size(), MiB(66));
}

}  // namespace
}  // namespace space
