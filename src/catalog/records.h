// Rows of the catalog as values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "catalog/sandbox_state.h"

namespace space {

// Microseconds since 1970 in UTC.
using Micros = int64_t;
constexpr Micros kMicrosPerSecond = 1'000'000;
using TextMap = std::map<std::string, std::string>;

// What a key may do. kAdmin includes the others.
enum class Scope { kUse, kApprove, kAdmin };

struct Team {
  std::string id;
  std::string name;
  Micros created_at = 0;
};

struct ApiKey {
  std::string id;  // the first 8 hex digits of the key; not secret
  std::string team_id;
  std::string name;
  Scope scope = Scope::kUse;
  Micros created_at = 0;
  std::optional<Micros> last_used_at;
  std::optional<Micros> revoked_at;
};

struct Template {
  std::string id;
  std::string name;
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_mib = 0;
  std::string image_path;
  std::string image_digest;
  Micros created_at = 0;
};

struct SandboxRecord {
  std::string id;
  std::string team_id;
  std::string template_id;
  std::string alias;
  SandboxState state = SandboxState::kCreating;
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_mib = 0;
  Micros created_at = 0;
  Micros started_at = 0;  // when the agent was ready; created_at before that
  Micros end_at = 0;      // when its time is over
  std::optional<Micros> ended_at;
  int64_t timeout_seconds = 0;  // as asked for at creation
  TextMap metadata;
  std::string network;  // JSON of the request's `network`, empty when absent
  std::optional<bool> allow_internet;
  std::string envd_version;
  std::string envd_token;     // empty: not secured
  std::string traffic_token;  // empty: public
  std::string kernel_release;
  std::string agent_version;
  int64_t vmm_pid = 0;          // 0: none yet
  int64_t vmm_start_ticks = 0;  // field 22 of /proc/PID/stat: tells a reused pid
  // Durations of a creation, each from the request on: process launched, agent's hello, ready.
  int64_t launch_us = 0;
  int64_t hello_us = 0;
  int64_t ready_us = 0;
  std::string death_reason;  // one word, empty while it lives
  std::string death_detail;
  std::string last_serial_log;  // tails, kept of sandboxes that died by themselves
  std::string last_vmm_log;
};

}  // namespace space
