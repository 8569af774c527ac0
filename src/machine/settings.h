// The keys of /etc/space/config.toml that the command line and the emulated host need. The daemon
// reads the same file with its own, stricter reader: keys that are not ours are left to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space::machine {

// Whether the daemon runs in the emulated host.
enum class Mode { kAuto, kOn, kOff };  // kAuto: when KVM fails the probe
Result<Mode> ParseMode(std::string_view text);
std::string_view ModeName(Mode mode);

struct MachineSettings {
  Mode mode = Mode::kAuto;
  uint64_t memory_bytes = 0;  // 0: half of the host's, at most 8 GiB
  // 1 to 64. With several, QEMU 7.2 now and then lets an interrupt in right behind VMRUN, and the
  // machine's kernel dies of it; most of all while sandboxes are forked.
  uint32_t cpus = 1;
  uint64_t disk_bytes = 64ULL << 30;  // of the sparse data disk, when it is made
  std::string qemu = "qemu-system-x86_64";
  std::vector<std::string>
      extra_files;  // host files that appear in /opt/space/extra of the machine
};

struct Settings {
  std::string path = "/etc/space/config.toml";
  bool is_from_file = false;  // the file exists; otherwise these are the defaults
  std::string text;           // of the file, for the daemon inside the machine
  std::string data_dir = "/var/lib/space";
  std::string run_dir = "/run/space";
  std::string images_dir = "/var/lib/space/images";
  std::string listen_host = "127.0.0.1";
  uint16_t listen_port = 3000;
  MachineSettings machine;
};

// `path` empty: SPACE_CONFIG of the environment, else /etc/space/config.toml, which may be absent.
// A file that was named must exist.
//   errors: kNotFound, kInvalidArgument (names the file and the key)
Result<Settings> LoadSettings(const std::string& path);
// The same from text, for tests.
Result<Settings> ParseSettings(std::string text, const std::string& path);

// The user's file without [machine], which the daemon does not know.
Result<std::string> DaemonConfig(const Settings& settings);

// The configuration of the daemon inside the machine: what the user's file says, but with the
// machine's own folders and address.
Result<std::string> InnerConfig(const Settings& settings);

// "127.0.0.1:3000" as two parts; "[::1]:80" without the brackets.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
Result<HostPort> ParseHostPort(std::string_view text);

}  // namespace space::machine
