#include "virtio/mmio_transport.h"

#include <array>
#include <cstring>

#include <gtest/gtest.h>

#include "base/units.h"
#include "state/state.h"
#include "virtio/fake_driver.h"

namespace space {
namespace {

// What the transport did with its device.
struct Calls {
  int activations = 0;
  int resets = 0;
  int ready = 0;
  std::vector<uint64_t> tokens;
  uint64_t features = 0;
  std::span<Queue> queues;
  InterruptLine* line = nullptr;
  ErrorCode outcome = ErrorCode::kInternal;
  bool fails = false;
  int rounds = 0;  // how often OnQueueReady says that there is more
};

class RecordingDevice final : public VirtioDevice {
 public:
  explicit RecordingDevice(Calls& calls) : calls_(&calls) {}
  std::string_view name() const override { return "recording"; }
  DeviceType type() const override { return DeviceType::kEntropy; }
  uint64_t features() const override { return 1U << 5; }
  std::span<const uint16_t> queue_sizes() const override { return sizes_; }
  std::span<const std::byte> config() const override { return config_; }
  Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                        InterruptLine& line) override {
    ++calls_->activations;
    calls_->features = driver_features;
    calls_->queues = queues;
    calls_->line = &line;
    return {};
  }
  Result<bool> OnQueueReady(size_t) override {
    ++calls_->ready;
    if (calls_->fails) {
      return Fail(calls_->outcome, "broken");
    }
    return calls_->ready <= calls_->rounds;
  }
  Result<void> OnHostReady(uint64_t token, uint32_t) override {
    calls_->tokens.push_back(token);
    return {};
  }
  void Reset() override { ++calls_->resets; }
  void Save(StateWriter& out) const override { out.Add(name(), 1, "saved"); }
  Result<void> Restore(StateReader& in) override {
    SPACE_TRY(const StateSection section, in.Require(name(), 1), "restore");
    return section.body == "saved" ? Result<void>{} : Fail(ErrorCode::kInternal, "other body");
  }

 private:
  Calls* calls_;
  std::array<uint16_t, 2> sizes_{64, 16};
  std::array<std::byte, 6> config_{std::byte{1}, std::byte{2}, std::byte{3},
                                   std::byte{4}, std::byte{5}, std::byte{6}};
};

class MmioTransportTest : public testing::Test {
 protected:
  std::unique_ptr<MmioTransport> Make() {
    return std::make_unique<MmioTransport>(std::make_unique<RecordingDevice>(calls_), memory_,
                                           [this] { ++irqs_; });
  }
  uint32_t Read(uint64_t offset) {
    std::array<std::byte, 4> bytes;
    transport_->Read(offset, bytes);
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), 4);
    return value;
  }
  void Write(uint64_t offset, uint32_t value) {
    transport_->Write(offset, std::as_bytes(std::span(&value, 1)));
  }
  void Negotiate(uint64_t features) {
    Write(0x70, 1);
    Write(0x70, 3);
    Write(0x24, 0);
    Write(0x20, static_cast<uint32_t>(features));
    Write(0x24, 1);
    Write(0x20, static_cast<uint32_t>(features >> 32));
    Write(0x70, 11);
  }
  void SetUpQueue(uint32_t index, const QueueLayout& layout) {
    Write(0x30, index);
    Write(0x38, layout.size);
    Write(0x80, static_cast<uint32_t>(layout.descriptors.value));
    Write(0x84, static_cast<uint32_t>(layout.descriptors.value >> 32));
    Write(0x90, static_cast<uint32_t>(layout.available.value));
    Write(0x94, static_cast<uint32_t>(layout.available.value >> 32));
    Write(0xa0, static_cast<uint32_t>(layout.used.value));
    Write(0xa4, static_cast<uint32_t>(layout.used.value >> 32));
    Write(0x44, 1);
  }
  void BringUp() {
    Negotiate(kVersion1 | kEventIdx);
    SetUpQueue(0, driver_.layout());
    Write(0x70, 15);
  }

  static constexpr uint64_t kVersion1 = 1ULL << 32;
  static constexpr uint64_t kEventIdx = 1ULL << 29;
  GuestMemory memory_ = *GuestMemory::Create(MiB(1));
  FakeDriver driver_{memory_, 0, 64};
  Calls calls_;
  int irqs_ = 0;
  std::unique_ptr<MmioTransport> transport_ = Make();
};

TEST_F(MmioTransportTest, Identity_IsVirtioMmioVersion2) {
  EXPECT_EQ(Read(0x00), 0x74726976U);
  EXPECT_EQ(Read(0x04), 2U);
  EXPECT_EQ(Read(0x08), 4U);
  EXPECT_EQ(Read(0xb0), ~0U);
  EXPECT_EQ(Read(0x34), 64U);
  Write(0x30, 1);
  EXPECT_EQ(Read(0x34), 16U);
  Write(0x30, 2);
  EXPECT_EQ(Read(0x34), 0U);
}

TEST_F(MmioTransportTest, Features_AreTheDevicesAndTheTransports) {
  EXPECT_EQ(Read(0x10), (1U << 5) | (1U << 29));
  Write(0x14, 1);
  EXPECT_EQ(Read(0x10), 1U);
  Write(0x14, 2);
  EXPECT_EQ(Read(0x10), 0U);
}

TEST_F(MmioTransportTest, BringUp_ActivatesOnceWithTheAcceptedFeatures) {
  BringUp();
  EXPECT_EQ(Read(0x70), 15U);
  EXPECT_EQ(calls_.activations, 1);
  EXPECT_EQ(calls_.features, kVersion1 | kEventIdx);
  EXPECT_TRUE(calls_.queues[0].is_enabled());
  EXPECT_FALSE(calls_.queues[1].is_enabled());
  Write(0x70, 15);
  EXPECT_EQ(calls_.activations, 1);
}

TEST_F(MmioTransportTest, FeaturesOk_IsRefusedForUnofferedOrMissingFeatures) {
  Negotiate(kVersion1 | (1ULL << 40));
  EXPECT_EQ(Read(0x70), 3U);
  Write(0x70, 0);
  Negotiate(kEventIdx);
  EXPECT_EQ(Read(0x70), 3U);
  Write(0x70, 15);
  EXPECT_EQ(calls_.activations, 0);
}

TEST_F(MmioTransportTest, Features_CannotChangeAfterFeaturesOk) {
  Negotiate(kVersion1);
  Write(0x20, 0);
  Write(0x24, 0);
  Write(0x20, ~0U);
  SetUpQueue(0, driver_.layout());
  Write(0x70, 15);
  EXPECT_EQ(calls_.features, kVersion1);
}

TEST_F(MmioTransportTest, Status_OutOfOrderBitsAreIgnored) {
  Write(0x70, 4);
  Write(0x70, 8);
  Write(0x70, 2);
  EXPECT_EQ(Read(0x70), 0U);
  Write(0x70, 0xff);
  EXPECT_EQ(calls_.activations, 0);
}

TEST_F(MmioTransportTest, Queues_CannotBeSetUpBeforeFeaturesOkOrAfterDriverOk) {
  SetUpQueue(0, driver_.layout());
  EXPECT_EQ(Read(0x44), 0U);
  BringUp();
  SetUpQueue(1, driver_.layout());
  EXPECT_EQ(Read(0x44), 0U);
  Write(0x30, 0);
  Write(0x44, 0);
  EXPECT_EQ(Read(0x44), 1U);
}

TEST_F(MmioTransportTest, Queue_LargerThanTheDevicesMaximumStopsTheDevice) {
  Negotiate(kVersion1);
  QueueLayout layout = driver_.layout();
  layout.size = 128;
  SetUpQueue(0, layout);
  Write(0x70, 15);
  EXPECT_EQ(Read(0x70), 15U | 64U);
  EXPECT_EQ(calls_.activations, 0);
  EXPECT_EQ(transport_->guest_faults(), 1U);
}

TEST_F(MmioTransportTest, Queue_OutsideMemoryStopsTheDeviceUntilReset) {
  Negotiate(kVersion1);
  QueueLayout layout = driver_.layout();
  layout.used = {MiB(64)};
  SetUpQueue(0, layout);
  Write(0x70, 15);
  EXPECT_EQ(Read(0x70), 15U | 64U);
  EXPECT_EQ(Read(0x60), 2U);
  EXPECT_EQ(irqs_, 1);
  Write(0x50, 0);
  EXPECT_EQ(calls_.ready, 0);
  Write(0x70, 0);
  EXPECT_EQ(Read(0x60), 0U);
  BringUp();
  EXPECT_EQ(Read(0x70), 15U);
}

TEST_F(MmioTransportTest, GuestFault_StopsTheDeviceAndIsCounted) {
  BringUp();
  calls_.fails = true;
  calls_.outcome = ErrorCode::kGuestFault;
  EXPECT_FALSE(transport_->OnQueueNotify(0));
  EXPECT_EQ(Read(0x70), 15U | 64U);
  EXPECT_EQ(calls_.resets, 1);
  EXPECT_EQ(transport_->guest_faults(), 1U);
  EXPECT_FALSE(transport_->OnQueueNotify(0));
  Write(0x70, 15);
  EXPECT_EQ(calls_.ready, 1);
  EXPECT_EQ(calls_.activations, 1);
}

TEST_F(MmioTransportTest, HostFault_StopsTheDeviceButIsNotTheGuests) {
  BringUp();
  calls_.fails = true;
  calls_.outcome = ErrorCode::kIo;
  transport_->OnQueueNotify(0);
  EXPECT_EQ(Read(0x70), 15U | 64U);
  EXPECT_EQ(transport_->guest_faults(), 0U);
}

TEST_F(MmioTransportTest, Failed_StopsTheDevice) {
  BringUp();
  Write(0x70, 15 | 128);
  EXPECT_EQ(calls_.resets, 1);
  EXPECT_FALSE(transport_->OnQueueNotify(0));
  EXPECT_EQ(calls_.ready, 0);
}

TEST_F(MmioTransportTest, Notify_BeforeDriverOkOrForUnknownQueuesIsIgnored) {
  Write(0x50, 0);
  EXPECT_FALSE(transport_->OnQueueNotify(0));
  BringUp();
  Write(0x50, 2);
  Write(0x50, ~0U);
  EXPECT_FALSE(transport_->OnQueueNotify(99));
  EXPECT_EQ(calls_.ready, 0);
}

TEST_F(MmioTransportTest, Notify_TellsWhenThereIsMore) {
  BringUp();
  calls_.rounds = 1;
  EXPECT_TRUE(transport_->OnQueueNotify(0));
  EXPECT_FALSE(transport_->OnQueueNotify(0));
  calls_.rounds = 1000;
  calls_.ready = 0;
  Write(0x50, 0);  // by an exit: bounded
  EXPECT_EQ(calls_.ready, 16);
}

TEST_F(MmioTransportTest, Interrupt_IsSeenAndAcknowledgedByBit) {
  BringUp();
  calls_.line->SignalUsed();
  calls_.line->SignalConfig();
  EXPECT_EQ(irqs_, 2);
  EXPECT_EQ(Read(0x60), 3U);
  Write(0x64, 1);
  EXPECT_EQ(Read(0x60), 2U);
  EXPECT_EQ(Read(0xfc), 1U);
}

TEST_F(MmioTransportTest, Config_ReadsAnySizeAndZerosBehindTheEnd) {
  std::array<std::byte, 1> one{};
  transport_->Read(0x102, one);
  EXPECT_EQ(one[0], std::byte{3});
  std::array<std::byte, 8> eight;
  transport_->Read(0x104, eight);
  EXPECT_EQ(eight[1], std::byte{6});
  EXPECT_EQ(eight[2], std::byte{0});
  transport_->Read(0xfff, eight);
  EXPECT_EQ(eight[0], std::byte{0});
}

TEST_F(MmioTransportTest, OddAccesses_ChangeNothing) {
  BringUp();
  const std::array<std::byte, 8> wide{};
  transport_->Write(0x70, std::span(wide).first(1));
  transport_->Write(0x70, std::span(wide).first(2));
  transport_->Write(0x70, wide);
  transport_->Write(0x71, std::span(wide).first(4));
  transport_->Write(0x70, {});
  transport_->Write(0x100, std::span(wide).first(4));
  transport_->Write(~0ULL - 3, std::span(wide).first(4));
  EXPECT_EQ(Read(0x70), 15U);
  EXPECT_EQ(calls_.resets, 0);
  std::array<std::byte, 2> narrow{std::byte{9}, std::byte{9}};
  transport_->Read(0x70, narrow);
  EXPECT_EQ(narrow[0], std::byte{0});
}

TEST_F(MmioTransportTest, Reset_StopsOnlyAnActiveDevice) {
  Write(0x70, 0);
  EXPECT_EQ(calls_.resets, 0);
  BringUp();
  Write(0x70, 0);
  EXPECT_EQ(calls_.resets, 1);
  EXPECT_EQ(Read(0x70), 0U);
  EXPECT_EQ(Read(0x44), 0U);
}

TEST_F(MmioTransportTest, HostReady_ReachesTheDeviceAlsoBeforeActivation) {
  transport_->OnHostReady(7, 1);
  EXPECT_EQ(calls_.tokens, std::vector<uint64_t>{7});
}

TEST_F(MmioTransportTest, Restore_GoesOnWhereSaveWas) {
  BringUp();
  driver_.Add({{0x8000, 16, true}});
  ASSERT_TRUE(calls_.queues[0].Pop()->has_value());
  ASSERT_TRUE(calls_.queues[0].Push(0, 16).has_value());
  calls_.line->SignalUsed();
  StateWriter out;
  transport_->Save(out);
  const std::string saved = std::move(out).Take();

  transport_ = Make();
  auto in = StateReader::Parse(saved);
  ASSERT_TRUE(transport_->Restore(*in).has_value());
  EXPECT_EQ(calls_.activations, 2);
  EXPECT_EQ(Read(0x70), 15U);
  EXPECT_EQ(Read(0x60), 1U);
  EXPECT_EQ(calls_.queues[0].next_available(), 1);
  EXPECT_EQ(calls_.queues[0].next_used(), 1);
  transport_->KickAll();
  EXPECT_EQ(calls_.ready, 2);
}

TEST_F(MmioTransportTest, Restore_RefusesStateOfAnotherDevice) {
  StateWriter out;
  out.Add("mmio", 1, std::string(33, '\0'));
  const std::string saved = std::move(out).Take();
  auto in = StateReader::Parse(saved);
  EXPECT_FALSE(transport_->Restore(*in).has_value());
}

}  // namespace
}  // namespace space
