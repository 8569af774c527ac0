// The command line of the emulated host's QEMU, as data. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/layout.h"

namespace space::machine {

struct QemuPlan {
  std::string kernel;
  std::string initrd;
  std::string root_image;  // never written: QEMU keeps changes in a temporary file
  uint64_t memory_bytes = 0;
  uint32_t cpus = 0;
  uint16_t host_port = 0;  // of 127.0.0.1
  bool has_images_disk = false;
};

// Where the daemon listens inside QEMU's user network.
constexpr uint16_t kInnerPort = 3000;

// All but the program's name. Paths may hold commas.
std::vector<std::string> QemuArguments(const QemuPlan& plan, const Layout& layout);

}  // namespace space::machine
