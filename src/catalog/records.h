// Rows of the catalog as values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

// Who may go on after what: layers of one team are never used by another; the operator's (no team)
// are everybody's.
enum class LayerKind { kMemory, kDisk };
enum class LayerForm { kRaw, kSparse };
// kMemory: a memfd of the spaced that made it; the row outlives it, the pages do not.
enum class LayerStorage { kFile, kMemory };

struct LayerRecord {
  std::string id;       // 32 hex digits; the file in data_dir/layers is named by it
  std::string team_id;  // empty: the operator's
  LayerKind kind = LayerKind::kDisk;
  LayerForm form = LayerForm::kSparse;
  LayerStorage storage = LayerStorage::kFile;
  bool is_frozen = false;   // else the top of a sandbox's disk
  uint64_t size_bytes = 0;  // of the image that it is a layer of
  uint64_t file_bytes = 0;  // on disk or in memory, when it was frozen
  Micros created_at = 0;
};

// Layer ids bottom first, by what they make up: "memory", or the id of a disk ("root", "modules").
using Chains = std::map<std::string, std::vector<std::string>>;

// Who uses layers.
struct LayerUser {
  enum class Kind { kSandbox, kSnapshot } kind = Kind::kSandbox;
  std::string id;
};

// kTemplate: a variant of an operator's template; kKept: asked for by a client, a template of its
// own from then on; kPause: of one paused sandbox, listed nowhere.
enum class SnapshotKind { kTemplate, kKept, kPause };

struct SnapshotRecord {
  std::string id;  // 32 hex digits; its files are named by it
  SnapshotKind kind = SnapshotKind::kKept;
  std::string team_id;           // empty: the operator's
  std::string template_id;       // what clients create from; stays when a name is used again
  std::string name_space;        // the team's name; empty: unnamed
  std::string name;              // empty: unnamed
  std::string tag = "default";   // empty: the tag has moved on to a newer one
  std::string source_id;         // the sandbox; empty for templates
  std::string base_template_id;  // whose root file system lies at the bottom
  std::string fingerprint;       // kTemplate: of all that it was made of
  uint32_t vcpus = 0;
  uint64_t memory_mib = 0;
  uint64_t disk_mib = 0;
  TextMap environment;
  std::string envd_version;
  std::string agent_version;
  std::string kernel_release;
  bool has_memory = true;  // false: disks alone, a sandbox made of it boots
  bool has_working_set = false;
  uint64_t stored_bytes = 0;  // by its own layers and state
  std::string measures;       // JSON object: times and pages of the VMM's SnapshotReply, in us
  Micros created_at = 0;
  Micros used_at = 0;
};

// "<template id>:<tag>" or "<namespace>/<name>:<tag>" (E2B.md 2.7).
std::string PublicSnapshotId(const SnapshotRecord& record);
// "<namespace>/<name>", or the template id of an unnamed one.
std::string PublicSnapshotName(const SnapshotRecord& record);

// What a guest used at one time; sizes in bytes.
struct MetricPoint {
  Micros at = 0;  // whole seconds
  uint32_t cpu_count = 0;
  double cpu_used_percent = 0;  // of all its CPUs
  int64_t mem_used = 0;
  int64_t mem_total = 0;
  int64_t mem_cache = 0;
  int64_t disk_used = 0;
  int64_t disk_total = 0;
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
  TextMap environment;
  bool auto_pause = false;  // at end_at it is paused instead of killed
  bool auto_pause_keeps_memory = true;
  bool auto_resume = false;   // traffic wakes it when it is paused
  std::string source_id;      // the snapshot or sandbox that it came from; empty: a template
  std::string snapshot_id;    // of its pause, while it has one
  std::string origin;         // booted, restored, pooled, forked or resumed
  std::string last_measures;  // SnapshotRecord::measures of its last snapshot, pause or fork
  std::string next_top;       // layer that a snapshot in progress gives its disk
  std::string death_reason;   // one word, empty while it lives
  std::string death_detail;
  std::string last_serial_log;  // tails, kept of sandboxes that died by themselves
  std::string last_vmm_log;
};

}  // namespace space
