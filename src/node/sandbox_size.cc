#include "node/sandbox_size.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <charconv>

#include "base/fd.h"
#include "base/units.h"

namespace space {
namespace {

constexpr int64_t kMaxVcpus = 32;
// Taken by a restored guest until its first command has run, roughly.
constexpr uint64_t kStartBytes = MiB(32);
// Debian's cloud kernel takes 46 MiB for itself and panics on its way to our agent with 72.
constexpr int64_t kMinMemoryMib = 80;
constexpr int64_t kMaxDiskMib = 16LL * 1024 * 1024;  // 16 TiB, layer/sparse_layer.h

tl::unexpected<Error> BadReference(std::string_view text) {
  return Fail(ErrorCode::kInvalidArgument,
              "templateID must be NAME, NAME:TAG or NAME@2c-1024m-8192d, not", text);
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 128 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") ==
             std::string_view::npos;
}

// "2c-1024m-8192d"
Result<AskedSize> ParseVariant(std::string_view variant, std::string_view whole) {
  AskedSize size;
  while (!variant.empty()) {
    const size_t dash = std::min(variant.find('-'), variant.size());
    const std::string_view part = variant.substr(0, dash);
    variant.remove_prefix(std::min(dash + 1, variant.size()));
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end + 1 != part.data() + part.size()) {
      return BadReference(whole);
    }
    std::optional<int64_t>& field = *end == 'c'   ? size.vcpus
                                    : *end == 'm' ? size.memory_mib
                                                  : size.disk_mib;
    if ((*end != 'c' && *end != 'm' && *end != 'd') || field) {
      return BadReference(whole);
    }
    field = value;
  }
  return size;
}

uint64_t FieldOf(std::string_view meminfo, std::string_view name) {
  const size_t at = meminfo.find(name);
  if (at == std::string_view::npos) {
    return 0;
  }
  std::string_view rest = meminfo.substr(at + name.size());
  rest.remove_prefix(std::min(rest.find_first_of("0123456789"), rest.size()));
  uint64_t kib = 0;
  std::from_chars(rest.data(), rest.data() + rest.size(), kib);
  return KiB(kib);
}

}  // namespace

Result<TemplateReference> ParseTemplateReference(std::string_view text) {
  TemplateReference reference;
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  std::string_view rest = lower;
  const size_t at = rest.find('@');
  if (at != std::string_view::npos) {
    if (at + 1 == rest.size()) {
      return BadReference(text);
    }
    SPACE_TRY(reference.size, ParseVariant(rest.substr(at + 1), text), "");
    rest = rest.substr(0, at);
  }
  const size_t colon = rest.find(':');
  if (colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!IsName(reference.tag)) {
      return BadReference(text);
    }
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    reference.name_space = rest.substr(0, slash);
    rest = rest.substr(slash + 1);
    if (!IsName(reference.name_space)) {
      return BadReference(text);
    }
  }
  if (!IsName(rest)) {
    return BadReference(text);
  }
  reference.name = rest;
  return reference;
}

Result<SandboxSize> ChooseSize(const AskedSize& asked, const AskedSize& variant,
                               const SandboxSize& defaults, uint64_t host_memory_bytes) {
  const auto pick = [](const std::optional<int64_t>& first, const std::optional<int64_t>& second,
                       uint64_t otherwise) {
    return first ? *first : second ? *second : static_cast<int64_t>(otherwise);
  };
  const int64_t vcpus = pick(asked.vcpus, variant.vcpus, defaults.vcpus);
  const int64_t memory = pick(asked.memory_mib, variant.memory_mib, defaults.memory_mib);
  const int64_t disk = pick(asked.disk_mib, variant.disk_mib, defaults.disk_mib);
  if (vcpus < 1 || vcpus > kMaxVcpus) {
    return Fail(ErrorCode::kInvalidArgument,
                "cpuCount must be from 1 to 32, not " + std::to_string(vcpus));
  }
  if (memory < kMinMemoryMib) {
    return Fail(ErrorCode::kInvalidArgument, "memoryMB must be at least " +
                                                 std::to_string(kMinMemoryMib) + ", not " +
                                                 std::to_string(memory));
  }
  if (static_cast<uint64_t>(memory) > host_memory_bytes / MiB(1)) {
    return Fail(ErrorCode::kInvalidArgument, "memoryMB is more than this host has (" +
                                                 std::to_string(host_memory_bytes / MiB(1)) +
                                                 "): " + std::to_string(memory));
  }
  if (memory % 2 != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                "memoryMB must be even, not " + std::to_string(memory));
  }
  if (disk < 1 || disk > kMaxDiskMib) {
    return Fail(ErrorCode::kInvalidArgument, "diskSizeMB must be from 1 to " +
                                                 std::to_string(kMaxDiskMib) + ", not " +
                                                 std::to_string(disk));
  }
  return SandboxSize{static_cast<uint32_t>(vcpus), static_cast<uint64_t>(memory),
                     static_cast<uint64_t>(disk)};
}

Result<HostUse> ReadHostUse(const std::string& data_dir) {
  HostUse use;
  SPACE_TRY(const std::string meminfo, ReadFile("/proc/meminfo"), "read host memory");
  use.memory_bytes = FieldOf(meminfo, "MemTotal:");
  use.available_memory_bytes = FieldOf(meminfo, "MemAvailable:");
  struct statvfs disk = {};
  if (::statvfs(data_dir.c_str(), &disk) != 0) {
    return FailErrno("read free space of", data_dir);
  }
  use.free_disk_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
  return use;
}

Result<void> CheckRoom(const Config& config, const HostUse& use, const SandboxSize& size) {
  if (use.sandboxes >= config.max_sandboxes) {
    return Fail(ErrorCode::kExhausted, "limits.max_sandboxes is reached: " +
                                           std::to_string(use.sandboxes) + " sandboxes exist");
  }
  const uint64_t limit = config.max_memory_bytes != 0 ? config.max_memory_bytes
                                                      : use.memory_bytes * config.memory_overcommit;
  if (use.sandbox_memory_bytes + MiB(size.memory_mib) > limit) {
    return Fail(ErrorCode::kExhausted,
                "limits.max_memory is reached (or limits.memory_overcommit): sandboxes have " +
                    FormatSize(use.sandbox_memory_bytes) + ", this one asks for " +
                    FormatSize(MiB(size.memory_mib)) + ", the limit is " + FormatSize(limit));
  }
  // What others that start now will take is not missing yet.
  const uint64_t needed = config.min_free_memory_bytes == 0
                              ? 0
                              : config.min_free_memory_bytes + (use.starting + 1) * kStartBytes;
  if (use.available_memory_bytes < needed) {
    return Fail(ErrorCode::kExhausted,
                "host is short of memory: " + FormatSize(use.available_memory_bytes) +
                    " available, " + std::to_string(use.starting + 1) +
                    " starting, limits.min_free_memory is " +
                    FormatSize(config.min_free_memory_bytes));
  }
  if (use.free_disk_bytes < config.min_free_disk_bytes) {
    return Fail(ErrorCode::kExhausted, "no disk space: " + FormatSize(use.free_disk_bytes) +
                                           " free in " + config.data_dir +
                                           ", limits.min_free_disk is " +
                                           FormatSize(config.min_free_disk_bytes));
  }
  return {};
}

}  // namespace space
