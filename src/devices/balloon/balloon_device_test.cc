#include "devices/balloon/balloon_device.h"

#include <array>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "base/units.h"
#include "layer/sparse_layer.h"
#include "memory/page_scan.h"
#include "state/state.h"
#include "virtio/fake_driver.h"

namespace space {
namespace {

constexpr uint64_t kMemory = MiB(256);
constexpr uint64_t kFree = MiB(2);  // pages that the tests fill and report

class BalloonTest : public testing::Test {
 protected:
  explicit BalloonTest(GuestMemory memory = *GuestMemory::Create(kMemory))
      : memory_(std::move(memory)) {
    for (const FakeDriver& driver : drivers_) {
      queues_.push_back(*Queue::Create(memory_, driver.layout(), false));
    }
    EXPECT_TRUE(device_.Activate(queues_, BalloonDevice::kReporting, line_).has_value());
  }

  FakeDriver& inflate() { return drivers_[BalloonDevice::kInflateQueue]; }
  FakeDriver& reporting() { return drivers_[BalloonDevice::kReportingQueue]; }
  // Each page of `count` from kFree on begins with its own number.
  void FillPages(uint64_t count) {
    for (uint64_t page = 0; page < count; ++page) {
      reporting().Put(kFree + page * kPageBytes, page + 1);
    }
  }
  uint64_t Page(uint64_t page) { return reporting().Get<uint64_t>(kFree + page * kPageBytes); }
  Result<bool> Report() { return device_.OnQueueReady(BalloonDevice::kReportingQueue); }
  uint64_t DirtyPages(PageRange pages) {
    PageScan scan = *PageScan::Open();
    EXPECT_TRUE(scan.Scan(memory_).has_value());
    return scan.dirty().CountIn(pages);
  }

  GuestMemory memory_;
  std::array<FakeDriver, 3> drivers_ = {FakeDriver(memory_, 0, 64), FakeDriver(memory_, 0x4000, 64),
                                        FakeDriver(memory_, 0x8000, 64)};
  FakeInterruptLine line_;
  std::vector<Queue> queues_;
  BalloonDevice device_;
};

TEST_F(BalloonTest, Report_GivesThePagesBackToTheHost) {
  FillPages(4);
  const PageRange reported{kFree / kPageBytes, 2};
  ASSERT_EQ(DirtyPages(reported), 2U);
  reporting().Add({{kFree, kPageBytes, true}, {kFree + kPageBytes, kPageBytes, true}});
  ASSERT_FALSE(*Report());
  EXPECT_EQ(DirtyPages(reported), 0U);
  EXPECT_EQ(Page(0), 0U);
  EXPECT_EQ(Page(1), 0U);
  EXPECT_EQ(Page(2), 3U);
  EXPECT_EQ(reporting().used_index(), 1);
  EXPECT_EQ(reporting().used(0).written, 0U);
  EXPECT_EQ(line_.used, 1);
}

TEST_F(BalloonTest, Report_OfPartsOfPagesLeavesThem) {
  FillPages(4);
  // The tail of page 0, page 1, the head of page 2; then less than a page twice.
  reporting().Add({{kFree + 8, 2 * kPageBytes, true},
                   {kFree + 3 * kPageBytes, kPageBytes - 1, true},
                   {kFree + 3 * kPageBytes + 1, 16, true}});
  ASSERT_FALSE(*Report());
  EXPECT_EQ(Page(0), 1U);
  EXPECT_EQ(Page(1), 0U);
  EXPECT_EQ(Page(2), 3U);
  EXPECT_EQ(Page(3), 4U);
  EXPECT_EQ(reporting().used_index(), 1);
}

TEST_F(BalloonTest, Report_AsLargeAsLinuxSendsIsTakenWhole) {
  std::vector<FakeDriver::Part> blocks;
  for (uint64_t block = 0; block < 32; ++block) {
    reporting().Put(MiB(4) + block * MiB(4), block + 1);
    blocks.push_back({MiB(4) + block * MiB(4), MiB(4), true});
  }
  reporting().Add(blocks);
  ASSERT_TRUE(Report().has_value());
  EXPECT_EQ(reporting().used_index(), 1);
  EXPECT_EQ(reporting().Get<uint64_t>(MiB(4)), 0U);
  EXPECT_EQ(reporting().Get<uint64_t>(MiB(128)), 0U);
}

TEST_F(BalloonTest, Report_OfTheMostStopsForTheOthersAndGoesOn) {
  for (int chain = 0; chain < 3; ++chain) {
    reporting().Add({{MiB(128), BalloonDevice::kMaxReportBytes, true}});
  }
  EXPECT_TRUE(*Report());
  EXPECT_EQ(reporting().used_index(), 1);
  EXPECT_TRUE(*Report());
  EXPECT_TRUE(*Report());
  EXPECT_EQ(reporting().used_index(), 3);
  EXPECT_FALSE(*Report());
}

TEST_F(BalloonTest, Balloon_AnswersPagesThatItDidNotAskForAndTakesNone) {
  FillPages(1);
  constexpr uint64_t kNumbers = 0x20000;
  inflate().Put<uint32_t>(kNumbers, kFree / kPageBytes);
  for (const size_t queue : {BalloonDevice::kInflateQueue, BalloonDevice::kDeflateQueue}) {
    drivers_[queue].Add({{kNumbers, 4, false}});
    ASSERT_FALSE(*device_.OnQueueReady(queue));
    EXPECT_EQ(drivers_[queue].used_index(), 1);
  }
  EXPECT_EQ(Page(0), 1U);
}

TEST_F(BalloonTest, Balloon_IsEmptyAndOffersReportsAlone) {
  const std::span<const std::byte> config = device_.config();
  EXPECT_EQ(std::vector<std::byte>(config.begin(), config.end()), std::vector<std::byte>(8));
  EXPECT_EQ(device_.features(), 0x20U);
  EXPECT_EQ(device_.queue_sizes().size(), 3U);
}

TEST_F(BalloonTest, ResetDevice_DropsNothing) {
  FillPages(1);
  reporting().Add({{kFree, kPageBytes, true}});
  device_.Reset();
  EXPECT_FALSE(*Report());
  EXPECT_EQ(Page(0), 1U);
}

TEST_F(BalloonTest, State_GoesAround) {
  StateWriter out;
  device_.Save(out);
  const std::string bytes = std::move(out).Take();
  StateReader in = *StateReader::Parse(bytes);
  EXPECT_TRUE(device_.Restore(in).has_value());
  StateReader empty = *StateReader::Parse(StateWriter().Take());
  EXPECT_FALSE(device_.Restore(empty).has_value());
}

// ---- drivers that break the rules

struct BadReport {
  const char* name;
  std::vector<FakeDriver::Part> parts;
};

class BalloonHostileTest : public BalloonTest, public testing::WithParamInterface<BadReport> {};

TEST_P(BalloonHostileTest, Report_IsAGuestFaultAndDropsNothing) {
  FillPages(1);
  reporting().Add(GetParam().parts);
  const Result<bool> served = Report();
  ASSERT_FALSE(served.has_value());
  EXPECT_EQ(served.error().code(), ErrorCode::kGuestFault);
  EXPECT_EQ(reporting().used_index(), 0);
  EXPECT_EQ(Page(0), 1U);
}

constexpr FakeDriver::Part kGood{kFree, kPageBytes, true};

INSTANTIATE_TEST_SUITE_P(
    Reports, BalloonHostileTest,
    testing::Values(BadReport{"ReadOnly", {{kFree, kPageBytes, false}}},
                    BadReport{"ReadOnlyFirst", {{kFree, kPageBytes, false}, kGood}},
                    BadReport{"ReadOnlyLast", {kGood, {kFree, kPageBytes, false}}},
                    BadReport{"Empty", {kGood, {kFree, 0, true}}},
                    BadReport{"OutsideMemory", {kGood, {kMemory, kPageBytes, true}}},
                    BadReport{"LeavesMemory", {kGood, {kMemory - kPageBytes, MiB(1), true}}},
                    BadReport{"Wraps", {kGood, {~0ULL - 0xfff, 0x2000, true}}},
                    BadReport{"TooMuch", {kGood, {kMemory / 2, 128 << 20, true}}},
                    BadReport{"TheSameTooOften",
                              std::vector<FakeDriver::Part>(64, {MiB(4), MiB(4), true})}),
    [](const auto& tested) { return tested.param.name; });

TEST_F(BalloonTest, Report_OfTheRingsThemselvesIsAGuestFaultAtWorst) {
  reporting().Add({{0, MiB(1), true}});
  // The driver's index is gone with the page, so it is behind the device's.
  EXPECT_EQ(Report().error().code(), ErrorCode::kGuestFault);
  EXPECT_EQ(Report().error().code(), ErrorCode::kGuestFault);
}

TEST_F(BalloonTest, Report_ThatIsALoopIsAGuestFault) {
  FillPages(1);
  reporting().SetDescriptor(0, kFree, kPageBytes, FakeDriver::kWrite | FakeDriver::kNext, 1);
  reporting().SetDescriptor(1, kFree, kPageBytes, FakeDriver::kWrite | FakeDriver::kNext, 0);
  reporting().Offer(0);
  EXPECT_EQ(Report().error().code(), ErrorCode::kGuestFault);
  EXPECT_EQ(Page(0), 1U);
}

// ---- over a layer

GuestMemory LayeredMemory() {
  const UniqueFd layer = *CreateMemfd("layer");
  EXPECT_TRUE(CreateSparseLayer(layer.get(), kMemory).has_value());
  const std::array<uint64_t, kPageBytes / 8> older = {77};
  EXPECT_TRUE(PwriteFull(layer.get(), std::as_bytes(std::span(older)),
                         SparseLayer::FileOffset(kFree / kPageBytes))
                  .has_value());
  const std::array<MemoryExtent, 1> extents = {{{kFree / kPageBytes, 1, 0}}};
  const std::array<int, 1> fds = {layer.get()};
  return *GuestMemory::Map(kMemory, fds, *MemoryMap::Create(extents, kMemory / kPageBytes, 1));
}

class BalloonOverLayerTest : public BalloonTest {
 protected:
  BalloonOverLayerTest() : BalloonTest(LayeredMemory()) {}
};

TEST_F(BalloonOverLayerTest, Report_ShowsTheLayersPageAgainAndItIsNoLongerDirty) {
  ASSERT_EQ(Page(0), 77U);
  FillPages(2);
  const PageRange both{kFree / kPageBytes, 2};
  ASSERT_EQ(DirtyPages(both), 2U);
  reporting().Add({{kFree, 2 * kPageBytes, true}});
  ASSERT_FALSE(*Report());
  EXPECT_EQ(DirtyPages(both), 0U);
  EXPECT_EQ(Page(0), 77U);
  EXPECT_EQ(Page(1), 0U);
}

}  // namespace
}  // namespace space
