// How large a sandbox is: from the template, the variant in its name, and explicit fields. And
// whether the host can hold one more. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "node/config.h"

namespace space {

struct SandboxSize {
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_mib = 0;
};

// Parts that somebody asked for. Wider than SandboxSize, so that nonsense can be named.
struct AskedSize {
  std::optional<int64_t> vcpus = std::nullopt;
  std::optional<int64_t> memory_mib = std::nullopt;
  std::optional<int64_t> disk_mib = std::nullopt;
};

// "base@2c-1024m-8192d", "team/name:tag": the name, then any of cpus, memory and disk in MiB.
struct TemplateReference {
  std::string name_space;  // lower case, as all; empty: none given
  std::string name;        // without tag
  std::string tag;         // empty: none given
  AskedSize size;
};
//   errors: kInvalidArgument naming templateID
Result<TemplateReference> ParseTemplateReference(std::string_view text);

// `asked` over `variant` over `defaults`, checked against what a VM can be and the host has.
//   errors: kInvalidArgument naming the field (cpuCount, memoryMB, diskSizeMB)
Result<SandboxSize> ChooseSize(const AskedSize& asked, const AskedSize& variant,
                               const SandboxSize& defaults, uint64_t host_memory_bytes);

// What is in use now.
struct HostUse {
  uint64_t memory_bytes = 0;            // of the host
  uint64_t available_memory_bytes = 0;  // MemAvailable
  uint64_t free_disk_bytes = 0;         // where data_dir is
  uint64_t sandboxes = 0;
  uint64_t starting = 0;  // of them, and of pooled ones
  uint64_t sandbox_memory_bytes = 0;
};
Result<HostUse> ReadHostUse(const std::string& data_dir);

// kExhausted, naming the limit, when one more of this size does not fit.
Result<void> CheckRoom(const Config& config, const HostUse& use, const SandboxSize& size);

}  // namespace space
