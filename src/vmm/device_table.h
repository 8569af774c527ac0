// Every kind of virtio device that a machine can have. To add one: its folder under src/devices,
// and one row in device_table.cc.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "virtio/device.h"
#include "vmm/start_config.h"

namespace space {

// What a device may need beyond its poller.
struct DeviceHooks {
  std::function<void(std::string)> on_hello;  // under the device's lock
};

struct DeviceRow {
  std::string_view name;
  // How many of them this machine has.
  size_t (*count)(const MachineConfig& config);
  // The one of that number; takes its descriptors out of `config`. `poller` outlives the device.
  Result<std::unique_ptr<VirtioDevice>> (*create)(MachineConfig& config, size_t index,
                                                  HostPoller& poller, const DeviceHooks& hooks);
};

// In the order in which the guest finds them: disks first, so that disk 0 is /dev/vda. A new row
// goes last, and is left out of machines restored from snapshots without it: places and names of
// the devices are part of a snapshot.
std::span<const DeviceRow> DeviceTable();

}  // namespace space
