// A hostile balloon driver behind the transport: chains of any shape on the three queues, over
// memory of which one page is watched: nothing but a report that holds it may change it.
#include <cstdlib>
#include <vector>

#include "base/units.h"
#include "devices/balloon/balloon_device.h"
#include "input.h"
#include "virtio/fake_driver.h"

namespace {

using namespace space;

constexpr uint64_t kMemory = MiB(2);
constexpr uint64_t kWatched = MiB(1);
constexpr uint64_t kMark = 0x1234567812345678;

class Session {
 public:
  explicit Session(const GuestMemory& memory, bool event_idx) : memory_(memory) {
    for (FakeDriver& driver : drivers_) {
      driver.SetAvailableIndex(0);
      queues_.push_back(*Queue::Create(memory_, driver.layout(), event_idx));
      queues_.back().SetIndices(0, 0);
    }
    drivers_[0].Put(kWatched, kMark);
    static_cast<void>(device_.Activate(queues_, BalloonDevice::kReporting, line_));
  }

  // False when the device is broken, as the transport would then reset it.
  bool Step(fuzz::Input& input) {
    const auto action = input.Take<uint8_t>();
    const size_t queue = action % 4 == 3 ? BalloonDevice::kReportingQueue : action % 4;
    if (action >= 0xf8) {
      RawDescriptor(drivers_[queue], input);
    } else {
      AddChain(queue, action / 4 % 8, input);
    }
    for (int round = 0; round < 4; ++round) {
      const Result<bool> more = device_.OnQueueReady(queue);
      if (!more.has_value() || !*more) {
        return more.has_value();
      }
    }
    return true;
  }
  void Finish() {
    if (!may_be_gone_ && drivers_[0].Get<uint64_t>(kWatched) != kMark) {
      std::abort();
    }
    device_.Reset();
  }

 private:
  void AddChain(size_t queue, int parts, fuzz::Input& input) {
    std::vector<FakeDriver::Part> chain;
    for (int part = 0; part <= parts; ++part) {
      const auto shape = input.Take<uint8_t>();
      uint64_t address = uint64_t{input.Take<uint16_t>()} * 64;
      uint32_t length = (shape % 16 + 1U) * 1024;
      if (shape >= 0xe0) {  // now and then it lies anywhere
        address = input.Take<uint64_t>();
        length = input.Take<uint32_t>();
      }
      const bool is_writable = shape / 16 % 4 != 0;
      Note(queue, address, length);
      chain.push_back({address, length, is_writable});
    }
    drivers_[queue].Add(chain);
  }
  void RawDescriptor(FakeDriver& driver, fuzz::Input& input) {
    may_be_gone_ = true;
    const auto index = static_cast<uint16_t>(input.Take<uint8_t>() % 64);
    const auto address = input.Take<uint32_t>();
    const auto length = input.Take<uint32_t>();
    const auto flags = input.Take<uint8_t>();
    driver.SetDescriptor(index, address, length, flags, input.Take<uint8_t>());
    driver.Offer(input.Take<uint8_t>() % 64);
  }
  // Reports near the rings may drop what the driver put there, which then is any chain.
  void Note(size_t queue, uint64_t address, uint64_t length) {
    const bool has_rings = address < 0x10000;
    const bool has_mark = address < kWatched + kPageBytes && address + length > kWatched;
    may_be_gone_ |= queue == BalloonDevice::kReportingQueue && (has_rings || has_mark);
  }

  const GuestMemory& memory_;
  std::vector<FakeDriver> drivers_ = {FakeDriver(memory_, 0, 64), FakeDriver(memory_, 0x4000, 64),
                                      FakeDriver(memory_, 0x8000, 64)};
  FakeInterruptLine line_;
  std::vector<Queue> queues_;
  BalloonDevice device_;
  bool may_be_gone_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const GuestMemory memory = *GuestMemory::Create(kMemory);
  fuzz::Input input(data, size);
  Session session(memory, input.Take<uint8_t>() % 2 == 1);
  for (int step = 0; step < 64 && !input.is_empty(); ++step) {
    if (!session.Step(input)) {
      break;
    }
  }
  session.Finish();
  return 0;
}
