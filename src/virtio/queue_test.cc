#include "virtio/queue.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "virtio/fake_driver.h"

namespace space {
namespace {

constexpr uint16_t kSize = 8;
constexpr uint64_t kData = 0x10000;

class QueueTest : public testing::Test {
 protected:
  Queue MakeQueue(bool event_idx = false) {
    return *Queue::Create(memory_, driver_.layout(), event_idx);
  }
  static void ExpectBroken(Queue& queue) {
    const auto popped = queue.Pop();
    ASSERT_FALSE(popped.has_value());
    EXPECT_EQ(popped.error().code(), ErrorCode::kGuestFault);
    EXPECT_FALSE(queue.Pop().has_value());
    EXPECT_FALSE(queue.Push(0, 0).has_value());
    EXPECT_FALSE(queue.ShouldInterrupt().has_value());
    EXPECT_FALSE(queue.EnableNotifications().has_value());
  }

  GuestMemory memory_ = *GuestMemory::Create(MiB(16));
  FakeDriver driver_{memory_, 0, kSize};
};

TEST_F(QueueTest, Pop_GivesReadableThenWritableSpans) {
  driver_.PutText(kData, "request");
  driver_.Add({{kData, 3, false}, {kData + 3, 4, false}, {kData + 100, 8, true}});
  Queue queue = MakeQueue();
  const auto chain = queue.Pop();
  ASSERT_TRUE(chain.has_value() && chain->has_value());
  EXPECT_EQ((*chain)->readable_bytes, 7U);
  EXPECT_EQ((*chain)->writable_bytes, 8U);
  std::string text(4, ' ');
  EXPECT_EQ(CopyFrom((*chain)->readable, 2, std::as_writable_bytes(std::span(text))), 4U);
  EXPECT_EQ(text, "ques");
  EXPECT_FALSE(queue.Pop()->has_value());
}

TEST_F(QueueTest, Copy_StopsAtTheEndOfTheChain) {
  driver_.Add({{kData, 3, true}, {kData + 10, 3, true}});
  Queue queue = MakeQueue();
  const auto chain = queue.Pop();
  const std::string text = "abcdefgh";
  EXPECT_EQ(CopyTo((*chain)->writable, 2, std::as_bytes(std::span(text))), 4U);
  EXPECT_EQ(driver_.GetText(kData + 2, 1), "a");
  EXPECT_EQ(driver_.GetText(kData + 10, 3), "bcd");
  EXPECT_EQ(CopyTo((*chain)->writable, 6, std::as_bytes(std::span(text))), 0U);
}

TEST_F(QueueTest, Push_FillsTheUsedRingAndItsIndexWraps) {
  Queue queue = MakeQueue();
  for (int round = 0; round < 70000; ++round) {
    driver_.Add({{kData, 16, true}});
    const auto chain = queue.Pop();
    ASSERT_TRUE(chain.has_value() && chain->has_value()) << round;
    ASSERT_TRUE(queue.Push((*chain)->head, 5).has_value());
    ASSERT_EQ(driver_.TakeUsed()->head, (*chain)->head);
  }
  EXPECT_EQ(driver_.used(queue.next_used() - 1).written, 5U);
}

TEST_F(QueueTest, UndoPop_GivesTheSameChainAgain) {
  const uint16_t head = driver_.Add({{kData, 16, true}});
  Queue queue = MakeQueue();
  ASSERT_TRUE(queue.Pop()->has_value());
  queue.UndoPop();
  EXPECT_EQ((*queue.Pop())->head, head);
}

TEST_F(QueueTest, Pop_RejectsDescriptorOutsideMemory) {
  for (const uint64_t address :
       std::initializer_list<uint64_t>{MiB(16), MiB(16) - 8, ~0ULL, ~0ULL - 15, GiB(4)}) {
    FakeDriver driver(memory_, 0x4000, kSize);
    driver.SetAvailableIndex(0);
    driver.Add({{address, 16, false}});
    Queue queue = *Queue::Create(memory_, driver.layout(), false);
    ExpectBroken(queue);
  }
}

TEST_F(QueueTest, Pop_RejectsZeroAndHugeLengths) {
  for (const uint32_t length : {0U, ~0U, 0x80000000U}) {
    FakeDriver driver(memory_, 0x4000, kSize);
    driver.SetAvailableIndex(0);
    driver.Add({{kData, length, false}});
    Queue queue = *Queue::Create(memory_, driver.layout(), false);
    ExpectBroken(queue);
  }
}

TEST_F(QueueTest, Pop_RejectsHeadOutsideTheQueue) {
  driver_.Offer(kSize);
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_RejectsNextOutsideTheQueue) {
  driver_.SetDescriptor(0, kData, 16, FakeDriver::kNext, 0xffff);
  driver_.Offer(0);
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_RejectsLoops) {
  driver_.SetDescriptor(0, kData, 16, FakeDriver::kNext, 1);
  driver_.SetDescriptor(1, kData, 16, FakeDriver::kNext, 0);
  driver_.Offer(0);
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_AcceptsAChainAsLongAsTheQueue) {
  driver_.Add(std::vector<FakeDriver::Part>(kSize, {kData, 16, false}));
  Queue queue = MakeQueue();
  EXPECT_EQ((*queue.Pop())->readable.size(), kSize);
}

TEST_F(QueueTest, Pop_RejectsReadableAfterWritable) {
  driver_.Add({{kData, 16, true}, {kData, 16, false}});
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_RejectsIndirectDescriptors) {
  driver_.SetDescriptor(0, kData, 16, FakeDriver::kIndirect, 0);
  driver_.Offer(0);
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_RejectsChainsThatClaimTooMuchByOverlapping) {
  driver_.Add({{0, 3 << 20, true}, {0, 3 << 20, true}});
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_AcceptsOverlappingDescriptorsWithinTheLimit) {
  driver_.Add({{kData, 4096, false}, {kData, 4096, true}});
  Queue queue = MakeQueue();
  EXPECT_TRUE(queue.Pop()->has_value());
}

TEST_F(QueueTest, Pop_RejectsAnIndexAheadByMoreThanTheSize) {
  driver_.SetAvailableIndex(kSize + 1);
  Queue queue = MakeQueue();
  ExpectBroken(queue);
}

TEST_F(QueueTest, Pop_RejectsAnIndexThatWentBack) {
  driver_.Add({{kData, 16, true}});
  Queue queue = MakeQueue();
  ASSERT_TRUE(queue.Pop()->has_value());
  driver_.SetAvailableIndex(0);
  ExpectBroken(queue);
}

TEST_F(QueueTest, Create_RejectsWrongSizes) {
  for (const uint16_t size : std::initializer_list<uint16_t>{0, 3, 6, 255, 65535}) {
    QueueLayout layout = driver_.layout();
    layout.size = size;
    EXPECT_FALSE(Queue::Create(memory_, layout, false).has_value()) << size;
  }
}

TEST_F(QueueTest, Create_RejectsRingsMisalignedOrOutsideMemory) {
  const QueueLayout good = driver_.layout();
  for (const uint64_t address :
       std::initializer_list<uint64_t>{MiB(16) - 16, MiB(16), ~0ULL - 15, ~0ULL, uint64_t{1}}) {
    QueueLayout layout = good;
    layout.descriptors = {address};
    EXPECT_FALSE(Queue::Create(memory_, layout, false).has_value());
    layout = good;
    layout.available = {address};
    EXPECT_FALSE(Queue::Create(memory_, layout, false).has_value());
    layout = good;
    layout.used = {address};
    EXPECT_FALSE(Queue::Create(memory_, layout, false).has_value());
  }
}

TEST_F(QueueTest, Disabled_IsEmptyAndRefusesPush) {
  Queue queue = Queue::Disabled();
  EXPECT_FALSE(queue.is_enabled());
  EXPECT_FALSE(queue.Pop()->has_value());
  EXPECT_FALSE(queue.Push(0, 0).has_value());
  EXPECT_FALSE(*queue.ShouldInterrupt());
  EXPECT_FALSE(*queue.EnableNotifications());
}

TEST_F(QueueTest, ShouldInterrupt_FollowsTheFlag) {
  Queue queue = MakeQueue();
  EXPECT_FALSE(*queue.ShouldInterrupt());
  ASSERT_TRUE(queue.Push(0, 0).has_value());
  EXPECT_TRUE(*queue.ShouldInterrupt());
  EXPECT_FALSE(*queue.ShouldInterrupt());
  driver_.SetAvailableFlags(1);
  ASSERT_TRUE(queue.Push(0, 0).has_value());
  EXPECT_FALSE(*queue.ShouldInterrupt());
}

TEST_F(QueueTest, ShouldInterrupt_FollowsTheUsedEvent) {
  Queue queue = MakeQueue(true);
  driver_.SetUsedEvent(1);  // after the second entry
  ASSERT_TRUE(queue.Push(0, 0).has_value());
  EXPECT_FALSE(*queue.ShouldInterrupt());
  ASSERT_TRUE(queue.Push(0, 0).has_value());
  EXPECT_TRUE(*queue.ShouldInterrupt());
  ASSERT_TRUE(queue.Push(0, 0).has_value());
  EXPECT_FALSE(*queue.ShouldInterrupt());
  EXPECT_FALSE(*queue.ShouldInterrupt());
}

TEST_F(QueueTest, EnableNotifications_SetsTheEventAndSeesLateBuffers) {
  Queue queue = MakeQueue(true);
  driver_.Add({{kData, 16, true}});
  ASSERT_TRUE(queue.Pop()->has_value());
  EXPECT_FALSE(*queue.EnableNotifications());
  EXPECT_EQ(driver_.available_event(), 1);
  driver_.Add({{kData, 16, true}});
  EXPECT_TRUE(*queue.EnableNotifications());
}

}  // namespace
}  // namespace space
