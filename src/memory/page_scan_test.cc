#include "memory/page_scan.h"

#include <sys/mman.h>

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "base/units.h"
#include "layer/sparse_layer.h"

namespace space {
namespace {

// A layer file whose page n is filled with n % 251 + 1.
UniqueFd FullLayer(uint64_t pages) {
  UniqueFd fd = *CreateMemfd("layer");
  EXPECT_TRUE(CreateSparseLayer(fd.get(), pages * kPageBytes).has_value());
  std::vector<std::byte> page(kPageBytes);
  for (uint64_t at = 0; at < pages; ++at) {
    std::ranges::fill(page, static_cast<std::byte>(at % 251 + 1));
    EXPECT_TRUE(PwriteFull(fd.get(), page, SparseLayer::FileOffset(at)).has_value());
  }
  return fd;
}

std::set<uint64_t> Pages(const PageBitmap& bitmap) {
  std::set<uint64_t> pages;
  for (uint64_t at = bitmap.NextSet(0); at < bitmap.page_count(); at = bitmap.NextSet(at + 1)) {
    pages.insert(at);
  }
  EXPECT_EQ(pages.size(), bitmap.Count());
  return pages;
}

TEST(PageScan, Scan_FindsExactlyTheWrittenPages) {
  constexpr uint64_t kPages = 70000;  // more than two chunks, not a multiple of 64
  const UniqueFd layer = FullLayer(1000);
  ASSERT_EQ(::ftruncate(layer.get(), (kPages + 1) * kPageBytes), 0);
  const int fd = layer.get();
  const MemoryMap map = *MemoryMap::Create({{{0, 60000, 0}}}, kPages, 1);
  const auto memory = GuestMemory::Map(kPages * kPageBytes, {&fd, 1}, map);
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  // Else one write to a gap makes 512 pages present.
  ASSERT_EQ(::madvise(memory->flat().data(), memory->size_bytes(), MADV_NOHUGEPAGE), 0);
  auto scan = PageScan::Open();
  ASSERT_TRUE(scan.has_value());
  scan->Reserve(memory->size_bytes());
  ASSERT_TRUE(scan->Scan(*memory).has_value());
  EXPECT_EQ(scan->dirty().Count(), 0U);

  std::mt19937 random(1);  // NOLINT: the same sequence each time
  std::set<uint64_t> written = {0, kPages - 1, 32767, 32768, 59999, 60000};
  while (written.size() < 3000) {
    written.insert(random() % kPages);
  }
  for (const uint64_t page : written) {
    memory->flat()[page * kPageBytes + random() % kPageBytes] = std::byte{7};
  }
  ASSERT_TRUE(scan->Scan(*memory).has_value());
  EXPECT_EQ(Pages(scan->dirty()), written);
}

TEST(PageScan, Scan_TellsReadPagesFromWrittenOnes) {
  const UniqueFd layer = FullLayer(256);
  const int fd = layer.get();
  const auto memory =
      GuestMemory::Map(MiB(1), {&fd, 1}, *MemoryMap::Create({{{0, 256, 0}}}, 256, 1));
  ASSERT_TRUE(memory.has_value()) << memory.error().message();
  ASSERT_EQ(::madvise(memory->flat().data(), 64 * kPageBytes, MADV_POPULATE_READ), 0);
  ASSERT_EQ(::madvise(memory->flat().data(), 3 * kPageBytes, MADV_POPULATE_WRITE), 0);
  auto scan = PageScan::Open();
  ASSERT_TRUE(scan->Scan(*memory).has_value());
  EXPECT_EQ(Pages(scan->dirty()), (std::set<uint64_t>{0, 1, 2}));
  EXPECT_EQ(scan->clean().CountIn({3, 61}), 61U);
  EXPECT_FALSE(scan->clean().Test(2));
}

TEST(PageBitmap, Next_FindsSetAndClearBitsAcrossWords) {
  PageBitmap bitmap(200);
  bitmap.Set({60, 80});
  EXPECT_EQ(bitmap.NextSet(0), 60U);
  EXPECT_EQ(bitmap.NextSet(139), 139U);
  EXPECT_EQ(bitmap.NextSet(140), 200U);
  EXPECT_EQ(bitmap.NextClear(60), 140U);
  EXPECT_EQ(bitmap.NextClear(0), 0U);
  bitmap.Set({140, 60});
  EXPECT_EQ(bitmap.NextClear(60), 200U);
  EXPECT_EQ(bitmap.CountIn({59, 3}), 2U);
  EXPECT_EQ(bitmap.CountIn({199, 1}), 1U);
  EXPECT_EQ(bitmap.Count(), 140U);
}

}  // namespace
}  // namespace space
