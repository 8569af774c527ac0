// Block requests: the input is a series of chains of any shape over a small image, with any bytes.
#include <cstdlib>
#include <vector>

#include "base/units.h"
#include "devices/block/block_device.h"
#include "input.h"
#include "virtio/fake_driver.h"

namespace {

using namespace space;

constexpr uint64_t kPages = 8;

LayeredImage MakeImage(bool writable) {
  std::vector<LayerSource> layers;
  UniqueFd base = *CreateMemfd("base");
  static_cast<void>(PwriteFull(base.get(), std::as_bytes(std::span("base")), 4096));
  layers.push_back({std::move(base), LayerFormat::kRaw, false});
  if (writable) {
    UniqueFd top = *CreateMemfd("top");
    static_cast<void>(CreateSparseLayer(top.get(), kPages * kPageBytes));
    layers.push_back({std::move(top), LayerFormat::kSparse, true});
  }
  return *LayeredImage::Open(std::move(layers), kPages * kPageBytes);
}

// One request: a header, then up to four buffers of sizes that may or may not make sense.
void AddRequest(FakeDriver& driver, fuzz::Input& input) {
  constexpr uint64_t kHeader = 0x10000;
  driver.Put<uint32_t>(kHeader, input.Take<uint8_t>() % 16);
  const auto sector = input.Take<uint8_t>();
  driver.Put<uint64_t>(kHeader + 8, sector < 0xf0 ? sector : input.Take<uint64_t>());
  const auto shape = input.Take<uint8_t>();
  std::vector<FakeDriver::Part> parts{
      {kHeader, (shape & 0x80) != 0 ? 16U : 15U + shape % 3, false}};
  for (int part = 0; part < shape % 5; ++part) {
    const auto size = input.Take<uint8_t>();
    const uint32_t length = size < 0x80 ? (size % 4U + 1) * 4096 : input.Take<uint16_t>();
    parts.push_back({0x20000 + uint64_t{size} * 16, length, size % 2 == 1});
  }
  driver.PutText(0x20000, input.TakeText(64));
  parts.push_back({0x11000, 1, true});
  driver.Add(parts);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const GuestMemory memory = *GuestMemory::Create(MiB(1));
  fuzz::Input input(data, size);
  const auto flags = input.Take<uint8_t>();
  BlockDevice device(MakeImage(flags % 2 == 0), "fuzz");
  FakeDriver driver(memory, 0, 64);
  driver.SetAvailableIndex(0);
  driver.Put<uint16_t>(12288 + 2, 0);
  Queue queue = *Queue::Create(memory, driver.layout(), (flags & 2) != 0);
  FakeInterruptLine line;
  static_cast<void>(device.Activate(std::span(&queue, 1), flags, line));
  for (int request = 0; request < 32 && !input.is_empty(); ++request) {
    AddRequest(driver, input);
    if (!device.OnQueueReady(0).has_value()) {
      break;
    }
  }
  if (device.io_errors() != 0) {
    std::abort();  // no request makes the host's own I/O fail
  }
  return 0;
}
