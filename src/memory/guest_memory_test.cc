#include "memory/guest_memory.h"

#include <unistd.h>

#include <array>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/units.h"
#include "layer/sparse_layer.h"

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

// A layer file of `pages` pages, page n filled with `value`.
UniqueFd LayerOf(uint64_t pages, int value) {
  UniqueFd fd = *CreateMemfd("layer");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), pages * kPageBytes).has_value());
  const std::vector<std::byte> bytes(pages * kPageBytes, static_cast<std::byte>(value));
  EXPECT_TRUE(PwriteFull(fd.get(), bytes, SparseLayer::FileOffset(0)).has_value());
  return fd;
}

TEST(GuestMemory, Map_TakesEachExtentFromItsLayerAndKeepsWritesPrivate) {
  const UniqueFd bottom = LayerOf(512, 1), top = LayerOf(512, 2);
  const std::vector<int> fds = {bottom.get(), top.get()};
  const MemoryMap map = *MemoryMap::Create({{{0, 10, 0}, {10, 5, 1}, {20, 1, 0}}}, 512, 2);
  const auto memory = GuestMemory::Map(MiB(2), fds, map);
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  const auto at = [&](uint64_t page) { return memory->flat()[page * kPageBytes + 4095]; };
  EXPECT_EQ(at(9), std::byte{1});
  EXPECT_EQ(at(10), std::byte{2});
  EXPECT_EQ(at(15), std::byte{0});
  EXPECT_EQ(at(20), std::byte{1});
  EXPECT_EQ(at(21), std::byte{0});
  memory->flat()[0] = std::byte{9};
  std::array<std::byte, 1> in_file;
  ASSERT_TRUE(PreadFull(bottom.get(), in_file, SparseLayer::FileOffset(0)).has_value());
  EXPECT_EQ(in_file[0], std::byte{1});
}

TEST(GuestMemory, Map_RefusesALayerThatEndsBeforeItsExtents) {
  const UniqueFd layer = LayerOf(512, 1);
  const int fd = layer.get();
  const MemoryMap all = *MemoryMap::Create({{{0, 512, 0}}}, 512, 1);
  EXPECT_TRUE(GuestMemory::Map(MiB(2), {&fd, 1}, all).has_value());
  EXPECT_FALSE(GuestMemory::Map(MiB(1), {&fd, 1}, all).has_value());
  EXPECT_FALSE(GuestMemory::Map(MiB(2), {}, all).has_value());
  ASSERT_EQ(::ftruncate(fd, 512 * kPageBytes), 0);
  const auto cut = GuestMemory::Map(MiB(2), {&fd, 1}, all);
  ASSERT_FALSE(cut.has_value());
  EXPECT_NE(cut.error().message().find("layer 0"), std::string::npos);
}

}  // namespace
}  // namespace space
