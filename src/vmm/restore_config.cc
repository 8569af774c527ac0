#include "vmm/restore_config.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <span>

#include "base/units.h"

namespace space {
namespace {

tl::unexpected<Error> Refuse(std::string text) {
  return Fail(ErrorCode::kInvalidArgument, std::move(text));
}

std::string Hex(const LayerId& id) {
  std::string text;
  for (const std::byte byte : id) {
    std::array<char, 4> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", static_cast<unsigned>(byte));
    text += digits.data();
  }
  return text;
}

Result<UniqueFd> CheckLayer(UniqueFd fd, const LayerId& wanted, uint64_t memory_bytes) {
  SPACE_TRY(UniqueFd kept, fd.Duplicate(), "open layer");
  SPACE_TRY(const SparseLayer layer, SparseLayer::Open(std::move(fd)), "open layer");
  if (layer.id() != wanted) {
    return Refuse("is " + Hex(layer.id()) + ", the snapshot stands on " + Hex(wanted));
  }
  if (layer.page_count() * kPageBytes != memory_bytes) {
    return Refuse("is of another size than the snapshot's memory");
  }
  return kept;
}

Result<void> CheckDisk(const wire::DiskSpec& given, const SavedDisk& saved) {
  if (given.id != saved.id) {
    return Refuse("disk " + given.id + " stands where the snapshot has disk " + saved.id);
  }
  if (given.size_bytes != saved.size_bytes || given.is_read_only != saved.is_read_only) {
    return Refuse("disk " + given.id + " is of another size or kind than in the snapshot");
  }
  const bool has_raw = given.layers.front() == wire::LayerFormat::kRaw;
  const size_t others = (saved.has_raw_bottom ? 1 : 0) + (saved.is_read_only ? 0 : 1);
  const size_t most = saved.layers.size() + others;
  const size_t least = std::min<size_t>(saved.layers.size(), 1) + others;
  // Fewer when some have been merged; Machine::CheckDiskLayers looks at the ids.
  if (has_raw != saved.has_raw_bottom || given.layers.size() > most ||
      given.layers.size() < least) {
    return Refuse("disk " + given.id + " has other layers than in the snapshot");
  }
  return {};
}

Result<void> CheckAgainstState(const wire::RestoreRequest& request, const SavedState& state) {
  if (request.memory_layers != state.memory_layers.size()) {
    return Refuse("memory_layers is " + std::to_string(request.memory_layers) +
                  ", the snapshot stands on " + std::to_string(state.memory_layers.size()));
  }
  if (request.disks.size() != state.disks.size()) {
    return Refuse("disks: " + std::to_string(request.disks.size()) + " given, the snapshot has " +
                  std::to_string(state.disks.size()));
  }
  for (size_t at = 0; at < state.disks.size(); ++at) {
    SPACE_TRY_VOID(CheckDisk(request.disks[at], state.disks[at]), "disks");
  }
  if ((request.serial_limit_bytes != 0) != state.has_serial) {
    return Refuse("serial_limit_bytes must be zero exactly when it was before the snapshot");
  }
  return {};
}

}  // namespace

Result<std::string> ReadWhole(int fd, uint64_t limit) {
  SPACE_TRY(const uint64_t size, FileSize(fd), "read file");
  if (size > limit) {
    return Refuse("file is too large");
  }
  std::string bytes(size, '\0');
  SPACE_TRY_VOID(PreadFull(fd, std::as_writable_bytes(std::span(bytes)), 0), "read file");
  return bytes;
}

Result<RestoreConfig> CheckRestore(const wire::RestoreRequest& request, std::vector<UniqueFd> fds,
                                   uint64_t host_memory_bytes) {
  SPACE_TRY_VOID(CheckDisks(request.disks), "restore VM");
  // State, serial log and exit record, besides layers and working set.
  const size_t expected =
      3 + request.memory_layers + CountLayers(request.disks) + (request.has_working_set ? 1 : 0);
  if (fds.size() != expected) {
    return Refuse("restore VM: " + std::to_string(fds.size()) + " descriptors came, " +
                  std::to_string(expected) +
                  " are needed (state, memory layers, disk layers, serial log, exit record, "
                  "working set)");
  }
  RestoreConfig config;
  auto next = fds.begin();
  SPACE_TRY(const std::string bytes, ReadWhole(next->get(), SavedState::kMaxBytes),
            "restore VM: state");
  ++next;
  SPACE_TRY(config.state, SavedState::Decode(bytes), "restore VM");
  SPACE_TRY_VOID(CheckAgainstState(request, config.state), "restore VM");
  if (config.state.memory_bytes > host_memory_bytes) {
    return Refuse("restore VM: the snapshot's memory is " + FormatSize(config.state.memory_bytes) +
                  ", more than the host's " + FormatSize(host_memory_bytes));
  }
  for (size_t at = 0; at < request.memory_layers; ++at) {
    SPACE_TRY(
        config.memory_layers.emplace_back(),
        CheckLayer(std::move(*next++), config.state.memory_layers[at], config.state.memory_bytes),
        "restore VM: memory layer " + std::to_string(at));
  }
  config.machine.vcpus = static_cast<uint32_t>(config.state.vcpus.size());
  config.machine.memory_bytes = config.state.memory_bytes;
  config.machine.serial_limit_bytes = request.serial_limit_bytes;
  config.machine.has_balloon = std::ranges::any_of(
      config.state.devices, [](const SavedDevice& device) { return device.name == "balloon"; });
  config.machine.disks = TakeDisks(request.disks, next);
  config.machine.serial_log = std::move(*next++);
  config.machine.exit_record = std::move(*next++);
  if (request.has_working_set) {
    config.working_set = std::move(*next++);
  }
  return config;
}

}  // namespace space
