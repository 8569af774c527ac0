#include "vmm/start_config.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <set>

#include "base/units.h"

namespace space {
namespace {

constexpr size_t kMaxDiskIdBytes = 20;

tl::unexpected<Error> Refuse(std::string text) {
  return Fail(ErrorCode::kInvalidArgument, std::move(text));
}

Result<void> CheckMachine(const wire::StartRequest& request, uint64_t host_memory_bytes) {
  if (request.vcpus == 0 || request.vcpus > MachineConfig::kMaxVcpus) {
    return Refuse("vcpus is " + std::to_string(request.vcpus) + ", must be 1 to 32");
  }
  const uint64_t memory = request.memory_bytes;
  if (memory < MachineConfig::kMinMemoryBytes) {
    return Refuse("memory_bytes is " + std::to_string(memory) + ", must be at least 64 MiB");
  }
  if (memory % MachineConfig::kMemoryStepBytes != 0) {
    return Refuse("memory_bytes is " + std::to_string(memory) + ", must be a multiple of 2 MiB");
  }
  if (memory > host_memory_bytes) {
    return Refuse("memory_bytes is " + FormatSize(memory) + ", more than the host's " +
                  FormatSize(host_memory_bytes));
  }
  if (request.command_line.size() > MachineConfig::kMaxCommandLineBytes ||
      request.command_line.find('\0') != std::string::npos) {
    return Refuse("command_line must be at most 2048 bytes without zeros");
  }
  return {};
}

bool IsDiskId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxDiskIdBytes && std::ranges::all_of(id, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

LayerFormat FormatOf(wire::LayerFormat format) {
  return format == wire::LayerFormat::kRaw ? LayerFormat::kRaw : LayerFormat::kSparse;
}

}  // namespace

Result<void> CheckDisks(const std::vector<wire::DiskSpec>& disks) {
  if (disks.size() > MachineConfig::kMaxDisks) {
    return Refuse("disks: " + std::to_string(disks.size()) + " given, at most 8 are possible");
  }
  std::set<std::string> seen;
  for (const wire::DiskSpec& disk : disks) {
    if (!IsDiskId(disk.id)) {
      return Refuse("disks: id '" + disk.id + "' must be 1 to 20 of a-z, 0-9 and _");
    }
    if (!seen.insert(disk.id).second) {
      return Refuse("disks: id '" + disk.id + "' is given twice");
    }
    if (disk.layers.empty()) {
      return Refuse("disk " + disk.id + ": layers is empty");
    }
    if (disk.size_bytes == 0 || disk.size_bytes % kPageBytes != 0) {
      return Refuse("disk " + disk.id + ": size_bytes must be a multiple of 4096, not 0");
    }
    for (size_t at = 0; at < disk.layers.size(); ++at) {
      const bool is_top = at + 1 == disk.layers.size();
      if (disk.layers[at] == wire::LayerFormat::kRaw &&
          (at != 0 || (is_top && !disk.is_read_only))) {
        return Refuse("disk " + disk.id +
                      ": only the bottom layer may be raw, and it is read-only");
      }
    }
  }
  return {};
}

size_t CountLayers(const std::vector<wire::DiskSpec>& disks) {
  size_t count = 0;
  for (const wire::DiskSpec& disk : disks) {
    count += disk.layers.size();
  }
  return count;
}

std::vector<DiskConfig> TakeDisks(const std::vector<wire::DiskSpec>& disks,
                                  std::vector<UniqueFd>::iterator& next) {
  std::vector<DiskConfig> taken;
  for (const wire::DiskSpec& spec : disks) {
    DiskConfig disk{spec.id,
                    {},
                    spec.size_bytes,
                    spec.is_read_only,
                    spec.layers.front() == wire::LayerFormat::kRaw};
    for (size_t at = 0; at < spec.layers.size(); ++at) {
      const bool is_writable = !spec.is_read_only && at + 1 == spec.layers.size();
      disk.layers.push_back({std::move(*next++), FormatOf(spec.layers[at]), is_writable});
    }
    taken.push_back(std::move(disk));
  }
  return taken;
}

Result<MachineConfig> CheckStart(const wire::StartRequest& request, std::vector<UniqueFd> fds,
                                 uint64_t host_memory_bytes) {
  SPACE_TRY_VOID(CheckMachine(request, host_memory_bytes), "start VM");
  SPACE_TRY_VOID(CheckDisks(request.disks), "start VM");
  // Kernel, initramfs, serial log and exit record, besides the layers.
  const size_t expected = 4 + CountLayers(request.disks);
  if (fds.size() != expected) {
    return Refuse("start VM: " + std::to_string(fds.size()) + " descriptors came, " +
                  std::to_string(expected) +
                  " are needed (kernel, initramfs, layers, serial log, "
                  "exit record)");
  }
  MachineConfig config;
  config.vcpus = request.vcpus;
  config.memory_bytes = request.memory_bytes;
  config.command_line = request.command_line;
  config.serial_limit_bytes = request.serial_limit_bytes;
  auto next = fds.begin();
  config.kernel = std::move(*next++);
  config.initramfs = std::move(*next++);
  config.disks = TakeDisks(request.disks, next);
  config.serial_log = std::move(*next++);
  config.exit_record = std::move(*next++);
  return config;
}

uint64_t HostMemoryBytes() {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) {
    return 0;
  }
  return uint64_t{info.totalram} * info.mem_unit;
}

}  // namespace space
