// What a VM is restored from, or booted from when it has no memory. Immutable; whoever restores
// from it holds it, and with it its layers. One io_context thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "catalog/records.h"
#include "node/config.h"
#include "node/layer_folder.h"
#include "node/sandbox_files.h"
#include "wire/vmm_control.h"

namespace space {

struct MachineImage {
  SnapshotRecord record;  // of a branch, never stored, id empty
  LayerChains chains;     // all frozen
  // Layers that one in `chains` stands for now: they go when the catalog does not name them either.
  std::vector<LayerPointer> replaced;
  UniqueFd state;           // of a branch; else the file of record.id
  bool is_refused = false;  // a VMM said that it cannot be restored
};
using ImagePointer = std::shared_ptr<MachineImage>;

struct VmmMessageWithFds {
  wire::VmmMessage request;
  std::vector<UniqueFd> fds;
};

// Starts a VM from the image's memory; `top` is its empty, writable disk layer.
Result<VmmMessageWithFds> MakeRestore(const Config& config, const LayerFolder& layers,
                                      const MachineImage& image, const SandboxFiles& files,
                                      UniqueFd top);

// Boots one: `chains.root` ends with the top, which travels as `top`.
//   errors: kNotFound naming a missing image, kInvalidArgument naming diskSizeMB when the disk is
//   smaller than the image
Result<VmmMessageWithFds> MakeStart(const Config& config, const LayerFolder& layers,
                                    const LayerChains& chains, const SandboxFiles& files,
                                    const SandboxRecord& record, UniqueFd top);

}  // namespace space
