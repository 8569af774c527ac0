#include "vmm/device_table.h"

#include <array>

#include "devices/balloon/balloon_device.h"
#include "devices/block/block_device.h"
#include "devices/rng/rng_device.h"
#include "devices/vsock/vsock_device.h"
#include "wire/ports.h"

namespace space {
namespace {

size_t One(const MachineConfig& /*config*/) { return 1; }

size_t CountDisks(const MachineConfig& config) { return config.disks.size(); }

size_t CountBalloons(const MachineConfig& config) { return config.has_balloon ? 1 : 0; }

Result<std::unique_ptr<VirtioDevice>> CreateBlock(MachineConfig& config, size_t index,
                                                  HostPoller& /*poller*/,
                                                  const DeviceHooks& /*hooks*/) {
  DiskConfig& disk = config.disks[index];
  SPACE_TRY(LayeredImage image, LayeredImage::Open(std::move(disk.layers), disk.size_bytes),
            "disk " + disk.id);
  return std::make_unique<BlockDevice>(std::move(image), disk.id);
}

Result<std::unique_ptr<VirtioDevice>> CreateVsock(MachineConfig& /*config*/, size_t /*index*/,
                                                  HostPoller& poller, const DeviceHooks& hooks) {
  VsockConfig vsock;
  vsock.guest_cid = wire::kGuestCid;
  vsock.hello_port = wire::kHelloPort;
  vsock.control_port = wire::kControlPort;
  vsock.on_hello = hooks.on_hello;
  SPACE_TRY(std::unique_ptr<VsockDevice> device, VsockDevice::Create(std::move(vsock), poller),
            "vsock");
  return device;
}

Result<std::unique_ptr<VirtioDevice>> CreateRng(MachineConfig& /*config*/, size_t /*index*/,
                                                HostPoller& poller, const DeviceHooks& /*hooks*/) {
  SPACE_TRY(std::unique_ptr<RngDevice> device, RngDevice::Create(poller), "rng");
  return device;
}

Result<std::unique_ptr<VirtioDevice>> CreateBalloon(MachineConfig& /*config*/, size_t /*index*/,
                                                    HostPoller& /*poller*/,
                                                    const DeviceHooks& /*hooks*/) {
  return std::make_unique<BalloonDevice>();
}

constexpr std::array<DeviceRow, 4> kTable = {{
    {"block", CountDisks, CreateBlock},
    {"vsock", One, CreateVsock},
    {"rng", One, CreateRng},
    {"balloon", CountBalloons, CreateBalloon},
}};

}  // namespace

std::span<const DeviceRow> DeviceTable() { return kTable; }

}  // namespace space
