#include "devices/rng/rng_device.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "virtio/fake_driver.h"

namespace space {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kData = 0x20000;

class RngTest : public testing::Test {
 protected:
  RngTest() { EXPECT_TRUE(device_->Activate(std::span(&queue_, 1), 0, line_).has_value()); }

  GuestMemory memory_ = *GuestMemory::Create(MiB(8));
  FakeDriver driver_{memory_, 0, 64};
  FakeInterruptLine line_;
  FakePoller poller_;
  steady_clock::time_point now_{};
  Queue queue_ = *Queue::Create(memory_, driver_.layout(), false);
  std::unique_ptr<RngDevice> device_ = *RngDevice::Create(poller_, [this] { return now_; });
};

TEST_F(RngTest, Request_IsFilledWithRandomBytes) {
  driver_.Add({{kData, 64, true}});
  driver_.Add({{kData + 64, 64, true}});
  ASSERT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used(1).written, 64U);
  EXPECT_NE(driver_.GetText(kData, 64), std::string(64, '\0'));
  EXPECT_NE(driver_.GetText(kData, 64), driver_.GetText(kData + 64, 64));
  EXPECT_EQ(line_.used, 1);
}

TEST_F(RngTest, HugeRequest_GetsAtMost64KiB) {
  driver_.Add({{kData, 1 << 20, true}});
  ASSERT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used(0).written, 64U << 10);
  EXPECT_EQ(driver_.GetText(kData + (64 << 10), 64), std::string(64, '\0'));
}

TEST_F(RngTest, Rate_IsBoundedAndGoesOnWithTime) {
  driver_.Add({{kData, 64 << 10, true}});
  driver_.Add({{kData, 64 << 10, true}});
  ASSERT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used_index(), 1);
  ASSERT_TRUE(device_->OnHostReady(RngDevice::kTimerToken, 1).has_value());
  EXPECT_EQ(driver_.used_index(), 1);
  now_ += std::chrono::milliseconds(50);
  ASSERT_TRUE(device_->OnHostReady(RngDevice::kTimerToken, 1).has_value());
  EXPECT_EQ(driver_.used_index(), 2);
  EXPECT_LE(driver_.used(1).written, (1U << 20) / 20);
}

TEST_F(RngTest, ReadOnlyBuffer_IsAGuestFault) {
  driver_.Add({{kData, 64, false}});
  EXPECT_EQ(device_->OnQueueReady(0).error().code(), ErrorCode::kGuestFault);
}

TEST_F(RngTest, Timer_OfAResetDeviceDoesNothing) {
  driver_.Add({{kData, 64, true}});
  device_->Reset();
  EXPECT_TRUE(device_->OnHostReady(RngDevice::kTimerToken, 1).has_value());
  EXPECT_FALSE(*device_->OnQueueReady(0));
  EXPECT_EQ(driver_.used_index(), 0);
}

}  // namespace
}  // namespace space
