// What a StartRequest and its descriptors ask for, checked before anything is built.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"
#include "layer/layered_image.h"
#include "wire/vmm_control.h"

namespace space {

struct DiskConfig {
  std::string id;
  std::vector<LayerSource> layers;  // bottom first
  uint64_t size_bytes = 0;
  bool is_read_only = false;
  bool has_raw_bottom = false;
};

struct MachineConfig {
  static constexpr uint32_t kMaxVcpus = 32;
  static constexpr uint64_t kMinMemoryBytes = 64 << 20;
  static constexpr uint64_t kMemoryStepBytes = 2 << 20;
  static constexpr size_t kMaxDisks = 8;
  static constexpr size_t kMaxCommandLineBytes = 2048;

  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;
  std::string command_line;  // of the caller; the machine's own words go before it
  UniqueFd kernel;
  UniqueFd initramfs;
  std::vector<DiskConfig> disks;
  UniqueFd serial_log;
  uint64_t serial_limit_bytes = 0;  // 0: no serial port
  bool has_balloon = true;          // not in snapshots of monitors that had none yet
  UniqueFd exit_record;
};

// Takes the descriptors in the order of wire/vmm_control.h.
//   errors: kInvalidArgument, naming the field (vcpus, memory_bytes, disks...) and what is allowed
Result<MachineConfig> CheckStart(const wire::StartRequest& request, std::vector<UniqueFd> fds,
                                 uint64_t host_memory_bytes);

// Ids, sizes and the kinds of layers; errors as CheckStart's.
Result<void> CheckDisks(const std::vector<wire::DiskSpec>& disks);
// Moves the disks' layers out of `fds`, from `next` on, which is moved behind them.
std::vector<DiskConfig> TakeDisks(const std::vector<wire::DiskSpec>& disks,
                                  std::vector<UniqueFd>::iterator& next);
size_t CountLayers(const std::vector<wire::DiskSpec>& disks);

uint64_t HostMemoryBytes();

}  // namespace space
