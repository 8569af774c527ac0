// virtio-blk (virtio 1.2, 5.2) over a layered image, one queue, logical block 4096. Requests are
// served synchronously on the device thread: with a warm page cache that beats handing them over.
#pragma once

#include <array>
#include <string>

#include "layer/layered_image.h"
#include "virtio/device.h"

namespace space {

class BlockDevice final : public VirtioDevice {
 public:
  // `id` is what the guest sees as the disk's serial, cut at 20 bytes.
  BlockDevice(LayeredImage image, std::string id);

  std::string_view name() const override { return "block"; }
  DeviceType type() const override { return DeviceType::kBlock; }
  uint64_t features() const override;
  std::span<const uint16_t> queue_sizes() const override;
  std::span<const std::byte> config() const override { return config_; }
  Result<void> Activate(std::span<Queue> queues, uint64_t driver_features,
                        InterruptLine& line) override;
  Result<bool> OnQueueReady(size_t queue_index) override;
  Result<void> OnHostReady(uint64_t token, uint32_t events) override;
  void Reset() override;
  void Save(StateWriter& out) const override;
  Result<void> Restore(StateReader& in) override;

  const LayeredImage& image() const { return image_; }
  // As LayeredImage::Freeze: requests are served whole, so between two of them the disk is one
  // instant.
  Result<int> FreezeTop(UniqueFd new_top) { return image_.Freeze(std::move(new_top)); }
  // Host-side read and write errors, which the guest saw as I/O errors.
  uint64_t io_errors() const { return io_errors_; }

 private:
  // Serves one chain; returns the bytes written into it, status included.
  Result<uint32_t> Serve(const Chain& chain);
  uint8_t Dispatch(uint32_t type, uint64_t sector, const Chain& chain, uint32_t& written);
  uint8_t ReadBlocks(uint64_t sector, const Chain& chain, uint32_t& written);
  uint8_t WriteBlocks(uint64_t sector, const Chain& chain);
  uint8_t Flush();
  uint8_t Erase(const Chain& chain, bool is_discard);
  uint8_t GetId(const Chain& chain, uint32_t& written) const;
  uint8_t Judge(const Result<void>& outcome, const char* what);

  LayeredImage image_;
  std::string id_;
  std::array<std::byte, 60> config_{};
  Queue* queue_ = nullptr;
  InterruptLine* line_ = nullptr;
  bool is_write_through_ = false;  // the driver did not accept FLUSH
  uint64_t io_errors_ = 0;
};

}  // namespace space
