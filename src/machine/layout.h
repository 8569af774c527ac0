// Where the emulated host keeps what: sockets and state in run_dir/machine (0700), disks in
// data_dir/machine (0700).
#pragma once

#include <cstddef>
#include <string>

#include "machine/settings.h"

namespace space::machine {

// Sessions with the machine at a time; an exec with input takes two for moments.
constexpr size_t kChannels = 16;

struct Layout {
  explicit Layout(const Settings& settings)
      : run(settings.run_dir + "/machine"), disks(settings.data_dir + "/machine") {}

  std::string run;
  std::string disks;

  std::string lock() const { return run + "/lock"; }
  std::string state() const { return run + "/state"; }
  std::string monitor_socket() const { return run + "/monitor.sock"; }
  std::string console() const { return run + "/console.log"; }
  std::string channel_socket(size_t index) const {
    return run + "/exec-" + std::to_string(index) + ".sock";
  }
  std::string channel_lock(size_t index) const {
    return run + "/exec-" + std::to_string(index) + ".lock";
  }
  std::string binaries_disk() const { return disks + "/bin.img"; }
  std::string images_disk() const { return disks + "/images.img"; }
  std::string data_disk() const { return disks + "/data.img"; }
};

}  // namespace space::machine
