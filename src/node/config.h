// spaced's settings: filled once from flags over environment over file, then never changed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace space {

// Defaults are those written here; the rows of config.cc document each key for people.
struct Config {
  std::string data_dir = "/var/lib/space";
  std::string run_dir = "/run/space";
  std::string listen = "127.0.0.1:3000";
  bool insecure_listen = false;
  std::string domain;      // empty: clients use the address that they came by
  std::string images_dir;  // empty: data_dir/images
  std::string vmm_path;    // empty: space-vmm beside spaced
  std::string kvm_path = "/dev/kvm";
  std::string command_line;  // appended to the guest kernel's

  uint32_t max_sandboxes = 1000;
  uint32_t team_sandboxes = 0;    // at the same time, each team; 0: as many as fit
  uint32_t team_requests = 500;   // to the API, a second, each team; 0: no limit
  uint64_t max_memory_bytes = 0;  // of all sandboxes; 0: memory_overcommit times the host's
  uint64_t min_free_memory_bytes = 0;
  uint64_t min_free_disk_bytes = 0;
  std::chrono::seconds max_timeout{24 * 3600};
  uint32_t memory_overcommit = 4;  // when max_memory_bytes is 0

  bool use_snapshots = true;  // false: every creation boots
  uint32_t pool_size = 4;     // the high mark, per variant; 0: no pool
  uint32_t pool_low = 0;      // filled again below it; 0: at once
  uint64_t pool_memory_bytes = 0;
  std::chrono::seconds pool_idle_time{600};

  uint32_t sandbox_vcpus = 2;
  uint64_t sandbox_memory_bytes = 0;
  uint64_t sandbox_disk_bytes = 0;
  std::chrono::milliseconds hello_timeout{120'000};
  std::chrono::milliseconds kill_grace{2'000};
  std::chrono::milliseconds body_timeout{
      30'000};  // a request to the API: from its head to its last byte
  std::chrono::seconds dead_retention{24 * 3600};
  std::chrono::milliseconds metrics_interval{5'000};
  std::chrono::seconds metrics_retention{3 * 3600};
  uint64_t serial_log_bytes = 0;
  uint64_t vmm_log_bytes = 0;

  Config();  // sizes from base/units.h
};

// Where a value came from, weakest first.
struct ConfigSources {
  std::string file;  // empty: none. A missing file is an error only when `file_must_exist`.
  bool file_must_exist = false;
  std::map<std::string, std::string> environment;  // SPACE_LIMITS_MAX_SANDBOXES=..., others ignored
  std::vector<std::pair<std::string, std::string>> flags;  // key ("limits.max_sandboxes"), value
};

// Reads and checks everything.
//   errors: kInvalidArgument naming the key, its source and what is wrong; an unknown key in file
//   or flags is an error
Result<Config> LoadConfig(const ConfigSources& sources);

// The whole effective configuration as TOML, each key with its description; secrets as "***".
std::string PrintConfig(const Config& config);

// For the command line: every key with its description.
struct ConfigKeyHelp {
  std::string key;
  std::string description;
};
std::vector<ConfigKeyHelp> ConfigKeys();
std::string EnvironmentNameOf(std::string_view key);  // "SPACE_LIMITS_MAX_SANDBOXES"

}  // namespace space
