#include "catalog/migrations.h"

#include <array>
#include <string>

namespace space {
namespace {

// Times are microseconds since 1970 in UTC. Maps of strings are JSON objects.
constexpr std::array<const char*, 3> kSteps = {R"sql(
CREATE TABLE teams (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams(id),
  name TEXT NOT NULL,
  hash TEXT NOT NULL,
  scope TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  last_used_at INTEGER,
  revoked_at INTEGER
) STRICT;

CREATE TABLE templates (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  vcpus INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  disk_mib INTEGER NOT NULL,
  image_path TEXT NOT NULL,
  image_digest TEXT NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams(id),
  template_id TEXT NOT NULL,
  alias TEXT NOT NULL,
  state TEXT NOT NULL,
  vcpus INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  disk_mib INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  end_at INTEGER NOT NULL,
  ended_at INTEGER,
  timeout_seconds INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  network TEXT NOT NULL,
  allow_internet INTEGER,
  envd_version TEXT NOT NULL,
  envd_token TEXT NOT NULL,
  traffic_token TEXT NOT NULL,
  kernel_release TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  vmm_pid INTEGER NOT NULL,
  vmm_start_ticks INTEGER NOT NULL,
  launch_us INTEGER NOT NULL,
  hello_us INTEGER NOT NULL,
  ready_us INTEGER NOT NULL,
  death_reason TEXT NOT NULL,
  death_detail TEXT NOT NULL,
  last_serial_log TEXT NOT NULL,
  last_vmm_log TEXT NOT NULL
) STRICT;
CREATE INDEX sandboxes_by_state ON sandboxes(state, started_at, id);
CREATE INDEX sandboxes_by_team ON sandboxes(team_id, started_at, id);
)sql",
                                               R"sql(
ALTER TABLE sandboxes ADD COLUMN environment TEXT NOT NULL DEFAULT '{}';
ALTER TABLE sandboxes ADD COLUMN auto_pause INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN auto_pause_keeps_memory INTEGER NOT NULL DEFAULT 1;
ALTER TABLE sandboxes ADD COLUMN auto_resume INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sandboxes ADD COLUMN source_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN next_top TEXT NOT NULL DEFAULT '';
ALTER TABLE sandboxes ADD COLUMN origin TEXT NOT NULL DEFAULT 'booted';
ALTER TABLE sandboxes ADD COLUMN last_measures TEXT NOT NULL DEFAULT '';

CREATE TABLE layers (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  form TEXT NOT NULL,
  storage TEXT NOT NULL,
  is_frozen INTEGER NOT NULL,
  size_bytes INTEGER NOT NULL,
  file_bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE layer_uses (
  user_kind TEXT NOT NULL,
  user_id TEXT NOT NULL,
  chain TEXT NOT NULL,
  place INTEGER NOT NULL,
  layer_id TEXT NOT NULL REFERENCES layers(id),
  PRIMARY KEY (user_kind, user_id, chain, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX layer_uses_by_layer ON layer_uses(layer_id);

CREATE TABLE snapshots (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  team_id TEXT NOT NULL,
  template_id TEXT NOT NULL,
  name_space TEXT NOT NULL,
  name TEXT NOT NULL,
  tag TEXT NOT NULL,
  source_id TEXT NOT NULL,
  base_template_id TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  vcpus INTEGER NOT NULL,
  memory_mib INTEGER NOT NULL,
  disk_mib INTEGER NOT NULL,
  environment TEXT NOT NULL,
  envd_version TEXT NOT NULL,
  agent_version TEXT NOT NULL,
  kernel_release TEXT NOT NULL,
  has_memory INTEGER NOT NULL,
  has_working_set INTEGER NOT NULL,
  stored_bytes INTEGER NOT NULL,
  measures TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  used_at INTEGER NOT NULL
) STRICT;
CREATE INDEX snapshots_by_team ON snapshots(team_id, created_at, id);
CREATE INDEX snapshots_by_template ON snapshots(template_id, tag);
)sql",
                                               R"sql(
CREATE TABLE metrics (
  sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,
  at INTEGER NOT NULL, -- seconds
  cpu_count INTEGER NOT NULL,
  cpu_used_ppm INTEGER NOT NULL,
  mem_used INTEGER NOT NULL,
  mem_total INTEGER NOT NULL,
  mem_cache INTEGER NOT NULL,
  disk_used INTEGER NOT NULL,
  disk_total INTEGER NOT NULL,
  PRIMARY KEY (sandbox_id, at)
) STRICT, WITHOUT ROWID;
CREATE INDEX metrics_by_time ON metrics(at);
CREATE INDEX sandboxes_by_template ON sandboxes(template_id, team_id, created_at);
)sql"};

}  // namespace

int NewestSchemaVersion() { return static_cast<int>(kSteps.size()); }

Result<void> Migrate(Database& database) {
  SPACE_TRY_VOID(
      database.Execute("CREATE TABLE IF NOT EXISTS migrations ("
                       "version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT"),
      "migrate catalog");
  int64_t version = 0;
  {
    SPACE_TRY(Statement statement,
              database.Prepare("SELECT coalesce(max(version), 0) FROM migrations"),
              "migrate catalog");
    SPACE_TRY([[maybe_unused]] const bool has_row, statement.Step(), "migrate catalog");
    version = statement.Number(0);
  }
  if (version > NewestSchemaVersion()) {
    return Fail(ErrorCode::kUnimplemented,
                "catalog was written by a newer version of spaced (schema " +
                    std::to_string(version) + ", this one knows " +
                    std::to_string(NewestSchemaVersion()) + ")");
  }
  for (int64_t next = version + 1; next <= NewestSchemaVersion(); ++next) {
    SPACE_TRY(Transaction transaction, Transaction::Begin(database, Durability::kDurable),
              "migrate catalog");
    SPACE_TRY_VOID(database.Execute(kSteps[static_cast<size_t>(next - 1)]),
                   "migrate catalog to schema " + std::to_string(next));
    SPACE_TRY_VOID(database.Execute("INSERT INTO migrations VALUES (" + std::to_string(next) +
                                    ", unixepoch() * 1000000)"),
                   "migrate catalog");
    SPACE_TRY_VOID(transaction.Commit(), "migrate catalog");
  }
  return {};
}

}  // namespace space
