// What a RestoreRequest, its descriptors and the saved state ask for, checked against each other
// before anything is built.
#pragma once

#include <optional>
#include <vector>

#include "base/fd.h"
#include "vmm/saved_state.h"
#include "vmm/start_config.h"
#include "wire/vmm_control.h"

namespace space {

struct RestoreConfig {
  SavedState state;
  MachineConfig machine;                // without kernel, initramfs, command line
  std::vector<UniqueFd> memory_layers;  // bottom first, ids and sizes checked
  std::optional<UniqueFd> working_set;
};

// Takes the descriptors in the order of wire/vmm_control.h.
//   errors: kInvalidArgument, naming the layer, disk or section that does not fit
Result<RestoreConfig> CheckRestore(const wire::RestoreRequest& request, std::vector<UniqueFd> fds,
                                   uint64_t host_memory_bytes);

// The whole of a file that was handed over, from its start; kInvalidArgument above `limit`.
Result<std::string> ReadWhole(int fd, uint64_t limit);

}  // namespace space
