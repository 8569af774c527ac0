#include "devices/block/block_device.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "state/state.h"
#include "virtio/fake_driver.h"

namespace space {
namespace {

constexpr uint64_t kHeader = 0x10000;
constexpr uint64_t kStatus = 0x11000;
constexpr uint64_t kData = 0x20000;
constexpr uint64_t kPages = 16;
constexpr uint8_t kOk = 0;
constexpr uint8_t kIoError = 1;
constexpr uint8_t kUnsupported = 2;
constexpr uint64_t kFlushFeature = 1 << 9;

LayeredImage MakeImage(bool writable) {
  std::vector<LayerSource> layers;
  UniqueFd base = *CreateMemfd("base");
  const std::vector<std::byte> ones(kPages * kPageBytes, std::byte{'1'});
  EXPECT_TRUE(PwriteFull(base.get(), ones, 0).has_value());
  layers.push_back({std::move(base), LayerFormat::kRaw, false});
  if (writable) {
    UniqueFd top = *CreateMemfd("top");
    EXPECT_TRUE(CreateSparseLayer(top.get(), kPages * kPageBytes).has_value());
    layers.push_back({std::move(top), LayerFormat::kSparse, true});
  }
  return *LayeredImage::Open(std::move(layers), kPages * kPageBytes);
}

class BlockTest : public testing::Test {
 protected:
  void SetUp() override { Start(true); }
  void Start(bool writable, uint64_t features = kFlushFeature) {
    device_ = std::make_unique<BlockDevice>(MakeImage(writable), "disk0");
    driver_ = FakeDriver(memory_, 0, 256);
    driver_.SetAvailableIndex(0);
    driver_.Put<uint16_t>(12288 + 2, 0);
    queue_ = *Queue::Create(memory_, driver_.layout(), false);
    ASSERT_TRUE(device_->Activate(std::span(&queue_, 1), features, line_).has_value());
  }
  void PutHeader(uint32_t type, uint64_t sector) {
    driver_.Put(kHeader, type);
    driver_.Put<uint32_t>(kHeader + 4, 0);
    driver_.Put(kHeader + 8, sector);
    driver_.Put<uint8_t>(kStatus, 0xee);
  }
  // The status byte of one request with `bytes` of data at kData.
  uint8_t Run(uint32_t type, uint64_t sector, uint32_t bytes, bool is_read = false) {
    PutHeader(type, sector);
    std::vector<FakeDriver::Part> parts{{kHeader, 16, false}};
    if (bytes > 0) {
      parts.push_back({kData, bytes, is_read});
    }
    parts.push_back({kStatus, 1, true});
    driver_.Add(parts);
    EXPECT_TRUE(device_->OnQueueReady(0).has_value());
    written_ = driver_.TakeUsed().value_or(FakeDriver::Used{0, ~0U}).written;
    return driver_.Get<uint8_t>(kStatus);
  }
  uint8_t Erase(uint32_t type, uint64_t sector, uint32_t sectors, uint32_t flags = 0) {
    driver_.Put(kData, sector);
    driver_.Put(kData + 8, sectors);
    driver_.Put(kData + 12, flags);
    return Run(type, 0, 16);
  }
  void ExpectFault(const std::vector<FakeDriver::Part>& parts) {
    driver_.Add(parts);
    const auto outcome = device_->OnQueueReady(0);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().code(), ErrorCode::kGuestFault);
  }
  uint64_t ConfigField(size_t at, size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, device_->config().data() + at, size);
    return value;
  }

  GuestMemory memory_ = *GuestMemory::Create(MiB(8));
  FakeDriver driver_{memory_, 0, 256};
  FakeInterruptLine line_;
  Queue queue_ = Queue::Disabled();
  std::unique_ptr<BlockDevice> device_;
  uint32_t written_ = 0;
};

TEST_F(BlockTest, Write_IsReadBackAndTheRestIsTheBase) {
  driver_.PutText(kData, std::string(8192, 'x'));
  EXPECT_EQ(Run(1, 8, 8192), kOk);
  EXPECT_EQ(written_, 1U);
  EXPECT_EQ(Run(0, 0, 4 * 4096, true), kOk);
  EXPECT_EQ(written_, 4U * 4096 + 1);
  EXPECT_EQ(driver_.GetText(kData, 16384),
            std::string(4096, '1') + std::string(8192, 'x') + std::string(4096, '1'));
  EXPECT_EQ(line_.used, 2);
}

TEST_F(BlockTest, Read_FillsScatteredBuffersAndTheStatusMayShareTheLast) {
  PutHeader(0, 0);
  driver_.Add({{kHeader, 16, false}, {kData, 100, true}, {kData + 8192, 3996 + 1, true}});
  ASSERT_TRUE(device_->OnQueueReady(0).has_value());
  EXPECT_EQ(driver_.GetText(kData, 101), std::string(100, '1') + '\0');
  EXPECT_EQ(driver_.GetText(kData + 8192, 3997), std::string(3996, '1') + '\0');
}

TEST_F(BlockTest, Header_MayBeSplit) {
  PutHeader(1, 8);
  driver_.PutText(kData, std::string(4096, 'y'));
  driver_.Add(
      {{kHeader, 3, false}, {kHeader + 3, 13, false}, {kData, 4096, false}, {kStatus, 1, true}});
  ASSERT_TRUE(device_->OnQueueReady(0).has_value());
  EXPECT_EQ(driver_.Get<uint8_t>(kStatus), kOk);
}

TEST_F(BlockTest, BadSectorsAndLengths_AreIoErrors) {
  EXPECT_EQ(Run(0, kPages * 8, 4096, true), kIoError);
  EXPECT_EQ(Run(0, (kPages - 1) * 8, 8192, true), kIoError);
  EXPECT_EQ(Run(0, ~0ULL & ~7ULL, 4096, true), kIoError);
  EXPECT_EQ(Run(0, 1, 4096, true), kIoError);
  EXPECT_EQ(Run(0, 0, 512, true), kIoError);
  EXPECT_EQ(Run(0, 0, 0, true), kIoError);
  EXPECT_EQ(Run(1, kPages * 8, 4096), kIoError);
  EXPECT_EQ(Run(1, 4, 4096), kIoError);
  EXPECT_EQ(Run(1, 0, 4095), kIoError);
  EXPECT_EQ(Run(1, 0, 0), kIoError);
  EXPECT_EQ(written_, 1U);
  EXPECT_EQ(device_->io_errors(), 0U);
}

TEST_F(BlockTest, Flush_Succeeds) { EXPECT_EQ(Run(4, 0, 0), kOk); }

TEST_F(BlockTest, GetId_IsTheDisksIdPaddedWithZeros) {
  EXPECT_EQ(Run(8, 0, 20, true), kOk);
  EXPECT_EQ(driver_.GetText(kData, 20), std::string("disk0") + std::string(15, '\0'));
  EXPECT_EQ(written_, 21U);
  EXPECT_EQ(Run(8, 0, 3, true), kOk);
  EXPECT_EQ(written_, 4U);
}

TEST_F(BlockTest, Discard_ReadsAsZeros) {
  EXPECT_EQ(Erase(11, 8, 8), kOk);
  EXPECT_EQ(Run(0, 0, 8192, true), kOk);
  EXPECT_EQ(driver_.GetText(kData, 8192), std::string(4096, '1') + std::string(4096, '\0'));
}

TEST_F(BlockTest, WriteZeroes_ReadsAsZerosWithAndWithoutUnmap) {
  EXPECT_EQ(Erase(13, 0, 8, 0), kOk);
  EXPECT_EQ(Erase(13, 8, 8, 1), kOk);
  EXPECT_EQ(Run(0, 0, 8192, true), kOk);
  EXPECT_EQ(driver_.GetText(kData, 8192), std::string(8192, '\0'));
}

TEST_F(BlockTest, Erase_RefusesWrongSegments) {
  EXPECT_EQ(Erase(11, kPages * 8, 8), kIoError);
  EXPECT_EQ(Erase(11, 0, ~0U & ~7U), kIoError);
  EXPECT_EQ(Erase(11, ~7ULL, 8), kIoError);
  EXPECT_EQ(Erase(11, 1, 8), kIoError);
  EXPECT_EQ(Erase(11, 0, 7), kIoError);
  EXPECT_EQ(Erase(11, 0, 0), kIoError);
  EXPECT_EQ(Erase(11, 0, 8, 1), kUnsupported);
  EXPECT_EQ(Erase(13, 0, 8, 2), kUnsupported);
  EXPECT_EQ(Run(11, 0, 0), kIoError);
  EXPECT_EQ(Run(11, 0, 15), kIoError);
  EXPECT_EQ(Run(11, 0, 16 * 17), kIoError);
}

TEST_F(BlockTest, UnknownTypes_AreUnsupported) {
  EXPECT_EQ(Run(2, 0, 0), kUnsupported);
  EXPECT_EQ(Run(14, 0, 4096), kUnsupported);
  EXPECT_EQ(Run(~0U, 0, 4096, true), kUnsupported);
}

TEST_F(BlockTest, ReadOnly_OffersNoWritesAndRefusesThem) {
  Start(false);
  EXPECT_NE(device_->features() & (1 << 5), 0U);
  EXPECT_EQ(device_->features() & ((1 << 13) | (1 << 14)), 0U);
  EXPECT_EQ(Run(1, 0, 4096), kIoError);
  EXPECT_EQ(Erase(11, 0, 8), kIoError);
  EXPECT_EQ(Erase(13, 0, 8), kIoError);
  EXPECT_EQ(Run(4, 0, 0), kOk);
  EXPECT_EQ(Run(0, 0, 4096, true), kOk);
}

TEST_F(BlockTest, Writable_OffersDiscardAndNotReadOnly) {
  EXPECT_EQ(device_->features() & (1 << 5), 0U);
  EXPECT_NE(device_->features() & (1 << 13), 0U);
}

TEST_F(BlockTest, Config_TellsCapacityAndBlockSize) {
  EXPECT_EQ(ConfigField(0, 8), kPages * 8);
  EXPECT_EQ(ConfigField(20, 4), 4096U);
  EXPECT_LE(ConfigField(8, 4) * ConfigField(12, 4) + 17, Queue::kMaxChainBytes);
}

TEST_F(BlockTest, ChainWithoutHeader_IsAGuestFault) {
  ExpectFault({{kHeader, 15, false}, {kStatus, 1, true}});
}

TEST_F(BlockTest, ChainWithoutStatus_IsAGuestFault) {
  PutHeader(1, 0);
  ExpectFault({{kHeader, 16, false}, {kData, 4096, false}});
}

TEST_F(BlockTest, BrokenRing_IsAGuestFault) {
  driver_.SetAvailableIndex(300);
  EXPECT_FALSE(device_->OnQueueReady(0).has_value());
}

TEST_F(BlockTest, WriteOverItsOwnHeader_UsesTheCopyThatWasChecked) {
  PutHeader(0, 0);  // reads page 0 over the header
  driver_.Add({{kHeader, 16, false}, {kHeader, 4096, true}, {kStatus, 1, true}});
  ASSERT_TRUE(device_->OnQueueReady(0).has_value());
  EXPECT_EQ(driver_.Get<uint8_t>(kStatus), kOk);
}

TEST_F(BlockTest, OneCall_StopsAtItsLimitAndSaysSo) {
  PutHeader(4, 0);
  for (int request = 0; request < 100; ++request) {
    driver_.Add({{kHeader, 16, false}, {kStatus, 1, true}});
  }
  EXPECT_TRUE(*device_->OnQueueReady(0));
  EXPECT_LT(driver_.used_index(), 100);
  EXPECT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used_index(), 100);
}

TEST_F(BlockTest, Reset_LeavesTheRingAlone) {
  device_->Reset();
  PutHeader(4, 0);
  driver_.Add({{kHeader, 16, false}, {kStatus, 1, true}});
  EXPECT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used_index(), 0);
}

TEST_F(BlockTest, State_SurvivesOnlyUnderItsName) {
  StateWriter out;
  device_->Save(out);
  const std::string saved = std::move(out).Take();
  auto in = StateReader::Parse(saved);
  EXPECT_TRUE(device_->Restore(*in).has_value());
  const std::string none = StateWriter().Take();
  auto empty = StateReader::Parse(none);
  EXPECT_FALSE(device_->Restore(*empty).has_value());
}

}  // namespace
}  // namespace space
