// The forked child that writes a snapshot. The parent's other threads do not exist in it, whatever
// locks they held are held for ever: system calls only, no allocation, no locks, no exit handlers.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "memory/freeze.h"
#include "memory/guest_memory.h"

namespace space {

struct SnapshotWork {
  static constexpr size_t kMaxFrozenDisks = 8;

  const FreezePlan* plan = nullptr;
  const GuestMemory* memory = nullptr;
  std::string_view state;
  int memory_fd = -1;
  int state_fd = -1;
  std::span<const int> frozen_disks;  // at most kMaxFrozenDisks
  bool is_durable = false;            // fdatasync of everything
  int gate_fd = -1;                   // SnapshotRequest::child_waits; -1: do not wait
};

// Exits 0 when all is written, else with the errno of what failed.
[[noreturn]] void RunSnapshotChild(const SnapshotWork& work) noexcept;

}  // namespace space
