#include "boot/pvh.h"

#include <vector>

#include "boot/layout.h"

namespace space::boot {
namespace {

constexpr uint32_t kStartMagic = 0x336ec578;

struct StartInfo {
  uint32_t magic = kStartMagic;
  uint32_t version = 1;
  uint32_t flags = 0;
  uint32_t module_count = 0;
  uint64_t module_list = 0;
  uint64_t command_line = 0;
  uint64_t rsdp = 0;
  uint64_t memory_map = 0;
  uint32_t memory_map_entries = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(StartInfo) == 56);

struct Module {
  uint64_t start = 0;
  uint64_t size_bytes = 0;
  uint64_t command_line = 0;
  uint64_t reserved = 0;
};
static_assert(sizeof(Module) == 32);

enum class MemoryType : uint32_t { kRam = 1, kReserved = 2 };

struct MemoryMapEntry {
  uint64_t start = 0;
  uint64_t size_bytes = 0;
  MemoryType type = MemoryType::kRam;
  uint32_t reserved = 0;
};
static_assert(sizeof(MemoryMapEntry) == 24);

std::vector<MemoryMapEntry> MapOf(const GuestMemory& memory) {
  std::vector<MemoryMapEntry> map;
  map.push_back({0, kLowRamEnd.value, MemoryType::kRam, 0});
  map.push_back(
      {kLowRamEnd.value, kKernelMinimum.value - kLowRamEnd.value, MemoryType::kReserved, 0});
  for (const GuestMemory::Region& region : memory.regions()) {
    const uint64_t skipped = region.start.value == 0 ? kKernelMinimum.value : 0;
    map.push_back(
        {region.start.value + skipped, region.bytes.size() - skipped, MemoryType::kRam, 0});
  }
  return map;
}

}  // namespace

Result<void> WriteStartInfo(const GuestMemory& memory, const LoadedInitramfs& initramfs,
                            const std::string& command_line) {
  if (command_line.size() >= kMaxCommandLineBytes) {
    return Fail(ErrorCode::kInvalidArgument, "command_line is too long",
                std::to_string(command_line.size()) + " bytes");
  }
  if (command_line.find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "command_line holds a zero byte");
  }
  // With its zero, which std::string keeps behind the last character.
  SPACE_TRY_VOID(memory.WriteBytes(kCommandLine, std::as_bytes(std::span(command_line.c_str(),
                                                                         command_line.size() + 1))),
                 "write command line");
  const std::vector<MemoryMapEntry> map = MapOf(memory);
  SPACE_TRY_VOID(memory.WriteBytes(kMemoryMap, std::as_bytes(std::span(map))), "write memory map");
  SPACE_TRY_VOID(
      memory.Write(kModuleList, Module{initramfs.start.value, initramfs.size_bytes, 0, 0}),
      "write module list");
  StartInfo info;
  info.module_count = 1;
  info.module_list = kModuleList.value;
  info.command_line = kCommandLine.value;
  info.rsdp = kRsdp.value;
  info.memory_map = kMemoryMap.value;
  info.memory_map_entries = static_cast<uint32_t>(map.size());
  return memory.Write(kStartInfo, info);
}

}  // namespace space::boot
