// Disks of the guest, told apart by the serial that the host gives them.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "base/result.h"

namespace space::agent::pid1 {

// "/dev/vda" for the virtio disk with this serial.
std::optional<std::string> FindDisk(const std::string& serial);
// As FindDisk, waiting for the driver to find it. kNotFound names the serial and what is there.
Result<std::string> WaitForDisk(const std::string& serial, std::chrono::milliseconds limit);

// ext4 first, then other file systems that the kernel knows; read-only when the disk is.
Result<void> MountRoot(const std::string& device, const std::string& target);
// The modules disk on /lib/modules/<release>, read-only.
Result<void> MountModules(const std::string& device);
// Grows the ext4 file system mounted at "/" to the size of its disk. Does nothing when it fits.
Result<void> GrowRoot(const std::string& device);

}  // namespace space::agent::pid1
