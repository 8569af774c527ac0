// Register accesses in any order, size and place, with a device that takes whatever its queue
// holds; then a save and a restore, which must give the same registers.
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "input.h"
#include "state/state.h"
#include "virtio/mmio_transport.h"

namespace {

using namespace space;

constexpr uint64_t kMemoryBytes = 64 << 10;

class EchoDevice final : public VirtioDevice {
 public:
  std::string_view name() const override { return "echo"; }
  DeviceType type() const override { return DeviceType::kEntropy; }
  uint64_t features() const override { return 3; }
  std::span<const uint16_t> queue_sizes() const override { return sizes_; }
  std::span<const std::byte> config() const override { return config_; }
  Result<void> Activate(std::span<Queue> queues, uint64_t, InterruptLine& line) override {
    if (!queues_.empty()) {
      std::abort();  // activated twice without a reset
    }
    queues_ = queues;
    line_ = &line;
    return {};
  }
  Result<bool> OnQueueReady(size_t queue_index) override {
    if (queue_index >= queues_.size()) {
      std::abort();  // called while not active
    }
    Queue& queue = queues_[queue_index];
    for (int served = 0; served < 8; ++served) {
      SPACE_TRY(const auto chain, queue.Pop(), "pop");
      if (!chain.has_value()) {
        return false;
      }
      SPACE_TRY_VOID(queue.Push(chain->head, 0), "push");
      line_->SignalUsed();
    }
    return true;
  }
  Result<void> OnHostReady(uint64_t, uint32_t) override { return {}; }
  void Reset() override {
    if (queues_.empty()) {
      std::abort();  // reset without having been active
    }
    queues_ = {};
  }
  void Save(StateWriter& out) const override { out.Add(name(), 1, ""); }
  Result<void> Restore(StateReader&) override { return {}; }

 private:
  std::array<uint16_t, 3> sizes_{256, 64, 1};
  std::array<std::byte, 10> config_{};
  std::span<Queue> queues_;
  InterruptLine* line_ = nullptr;
};

uint32_t ReadRegister(MmioTransport& transport, uint64_t offset) {
  std::array<std::byte, 4> bytes;
  transport.Read(offset, bytes);
  uint32_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

void Step(MmioTransport& transport, fuzz::Input& input, std::span<std::byte> memory) {
  const auto action = input.Take<uint8_t>();
  // Most accesses are to real registers, so that states are reached.
  const uint64_t offset =
      (action & 0x40) != 0 ? input.Take<uint16_t>() % 0x1000 : input.Take<uint8_t>() % 64 * 4U;
  switch (action % 8) {
    case 0: {
      std::array<std::byte, 8> bytes;
      return transport.Read(offset, std::span(bytes).first(input.Take<uint8_t>() % 9));
    }
    case 1:
      return transport.Write(offset, input.TakeBytes(input.Take<uint8_t>() % 9));
    case 2:
      static_cast<void>(transport.OnQueueNotify(input.Take<uint8_t>()));
      return;
    case 3:
      return transport.OnHostReady(input.Take<uint8_t>(), 1);
    case 4: {
      const auto at = input.Take<uint16_t>() % memory.size();
      const auto bytes = input.TakeBytes(input.Take<uint8_t>());
      const auto target = memory.subspan(at);
      std::ranges::copy(bytes.first(std::min(bytes.size(), target.size())), target.begin());
      return;
    }
    default:
      const auto value = input.Take<uint32_t>();
      return transport.Write(offset, std::as_bytes(std::span(&value, 1)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const GuestMemory memory = *GuestMemory::Create(kMemoryBytes);
  const auto bytes = *memory.Slice({0}, kMemoryBytes);
  std::ranges::fill(bytes, std::byte{0});
  fuzz::Input input(data, size);
  MmioTransport transport(std::make_unique<EchoDevice>(), memory, [] {});
  for (int step = 0; step < 512 && !input.is_empty(); ++step) {
    Step(transport, input, bytes);
  }
  StateWriter out;
  transport.Save(out);
  const std::string saved = std::move(out).Take();
  auto in = StateReader::Parse(saved);
  MmioTransport restored(std::make_unique<EchoDevice>(), memory, [] {});
  if (!restored.Restore(*in).has_value() ||
      ReadRegister(restored, 0x70) != ReadRegister(transport, 0x70) ||
      ReadRegister(restored, 0x60) != ReadRegister(transport, 0x60)) {
    std::abort();
  }
  return 0;
}
