#include "node/machine_image.h"

#include <utility>

#include "base/units.h"
#include "node/images.h"

namespace space {
namespace {

using wire::LayerFormat;

uint64_t WholePages(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

LayerFormat FormatOf(const Layer& layer) {
  return layer.record.form == LayerForm::kRaw ? LayerFormat::kRaw : LayerFormat::kSparse;
}

// Root and modules, bottom first, the top last of the root. `frozen_root` is without the top.
Result<std::vector<wire::DiskSpec>> AddDisks(const LayerFolder& layers,
                                             const std::vector<LayerPointer>& frozen_root,
                                             const std::vector<LayerPointer>& modules,
                                             uint64_t disk_bytes, UniqueFd top,
                                             std::vector<UniqueFd>& fds) {
  wire::DiskSpec root{"root", {}, false, disk_bytes};
  for (const LayerPointer& layer : frozen_root) {
    SPACE_TRY(UniqueFd fd, layers.Open(*layer), "open disk");
    root.layers.push_back(FormatOf(*layer));
    fds.push_back(std::move(fd));
  }
  root.layers.push_back(LayerFormat::kSparse);
  fds.push_back(std::move(top));
  wire::DiskSpec extra{"modules", {}, true, 0};
  for (const LayerPointer& layer : modules) {
    SPACE_TRY(UniqueFd fd, layers.Open(*layer), "open modules");
    extra.layers.push_back(FormatOf(*layer));
    extra.size_bytes = WholePages(layer->record.size_bytes);
    fds.push_back(std::move(fd));
  }
  return std::vector<wire::DiskSpec>{std::move(root), std::move(extra)};
}

Result<void> AddLogs(const SandboxFiles& files, std::vector<UniqueFd>& fds) {
  SPACE_TRY(UniqueFd serial, OpenAppend(files.serial_log()), "open serial log");
  SPACE_TRY(UniqueFd exit_record, OpenReadWrite(files.exit_record()), "open exit record");
  fds.push_back(std::move(serial));
  fds.push_back(std::move(exit_record));
  return {};
}

}  // namespace

Result<VmmMessageWithFds> MakeRestore(const Config& config, const LayerFolder& layers,
                                      const MachineImage& image, const SandboxFiles& files,
                                      UniqueFd top) {
  wire::RestoreRequest request;
  std::vector<UniqueFd> fds;
  if (image.state.valid()) {
    SPACE_TRY(UniqueFd state, image.state.Duplicate(), "open state");
    fds.push_back(std::move(state));
  } else {
    SPACE_TRY(UniqueFd state, OpenReadOnly(layers.StatePath(image.record.id)), "open state");
    fds.push_back(std::move(state));
  }
  request.memory_layers = static_cast<uint32_t>(image.chains.memory.size());
  for (const LayerPointer& layer : image.chains.memory) {
    SPACE_TRY(UniqueFd fd, layers.Open(*layer), "open memory");
    fds.push_back(std::move(fd));
  }
  SPACE_TRY(request.disks,
            AddDisks(layers, image.chains.root, image.chains.modules, MiB(image.record.disk_mib),
                     std::move(top), fds),
            "prepare disks");
  request.serial_limit_bytes = config.serial_log_bytes;
  SPACE_TRY_VOID(AddLogs(files, fds), "prepare logs");
  if (image.record.has_working_set) {
    // Only faster with it: a file that is gone is no reason to refuse.
    if (auto pages = OpenReadOnly(layers.WorkingSetPath(image.record.id))) {
      request.has_working_set = true;
      fds.push_back(*std::move(pages));
    }
  }
  return VmmMessageWithFds{std::move(request), std::move(fds)};
}

Result<VmmMessageWithFds> MakeStart(const Config& config, const LayerFolder& layers,
                                    const LayerChains& chains, const SandboxFiles& files,
                                    const SandboxRecord& record, UniqueFd top) {
  const std::string step = "template " + record.template_id;
  SPACE_TRY(UniqueFd kernel, OpenImage(KernelPath(config)), step);
  SPACE_TRY(UniqueFd initramfs, OpenImage(InitramfsPath(config)), step);
  const uint64_t base_bytes = chains.root.front()->record.size_bytes;
  if (MiB(record.disk_mib) < base_bytes) {
    return Fail(ErrorCode::kInvalidArgument,
                "diskSizeMB is less than the template's image needs (" +
                    std::to_string((base_bytes + MiB(1) - 1) / MiB(1)) + ")");
  }
  wire::StartRequest request;
  std::vector<UniqueFd> fds;
  request.vcpus = record.vcpus;
  request.memory_bytes = MiB(record.memory_mib);
  request.serial_limit_bytes = config.serial_log_bytes;
  request.command_line = config.command_line;  // the VMM puts the machine's own words before it
  fds.push_back(std::move(kernel));
  fds.push_back(std::move(initramfs));
  const std::vector<LayerPointer> frozen(chains.root.begin(), chains.root.end() - 1);
  SPACE_TRY(request.disks,
            AddDisks(layers, frozen, chains.modules, MiB(record.disk_mib), std::move(top), fds),
            step);
  SPACE_TRY_VOID(AddLogs(files, fds), "prepare logs");
  return VmmMessageWithFds{std::move(request), std::move(fds)};
}

}  // namespace space
