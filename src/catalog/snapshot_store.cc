#include "catalog/snapshot_store.h"

#include <array>

#include "catalog/json.h"

namespace space {
namespace {

// Order of ReadSnapshot and of the bindings in Insert.
constexpr std::string_view kColumns =
    "id, kind, team_id, template_id, name_space, name, tag, source_id, base_template_id, "
    "fingerprint, vcpus, memory_mib, disk_mib, environment, envd_version, agent_version, "
    "kernel_release, has_memory, has_working_set, stored_bytes, measures, created_at, used_at";

constexpr std::array<std::string_view, 3> kKindNames = {"template", "kept", "pause"};

std::string_view KindName(SnapshotKind kind) { return kKindNames.at(static_cast<size_t>(kind)); }

Result<SnapshotRecord> ReadSnapshot(const Statement& row) {
  SnapshotRecord record;
  record.id = row.Text(0);
  const std::string kind = row.Text(1);
  record.kind = kind == kKindNames[0]   ? SnapshotKind::kTemplate
                : kind == kKindNames[1] ? SnapshotKind::kKept
                                        : SnapshotKind::kPause;
  record.team_id = row.Text(2);
  record.template_id = row.Text(3);
  record.name_space = row.Text(4);
  record.name = row.Text(5);
  record.tag = row.Text(6);
  record.source_id = row.Text(7);
  record.base_template_id = row.Text(8);
  record.fingerprint = row.Text(9);
  record.vcpus = static_cast<uint32_t>(row.Number(10));
  record.memory_mib = static_cast<uint64_t>(row.Number(11));
  record.disk_mib = static_cast<uint64_t>(row.Number(12));
  SPACE_TRY(record.environment, DecodeTextMap(row.Text(13)), "read snapshot " + record.id);
  record.envd_version = row.Text(14);
  record.agent_version = row.Text(15);
  record.kernel_release = row.Text(16);
  record.has_memory = row.Number(17) != 0;
  record.has_working_set = row.Number(18) != 0;
  record.stored_bytes = static_cast<uint64_t>(row.Number(19));
  record.measures = row.Text(20);
  record.created_at = row.Number(21);
  record.used_at = row.Number(22);
  return record;
}

Result<std::vector<SnapshotRecord>> ReadAll(Statement& select, size_t limit) {
  std::vector<SnapshotRecord> records;
  while (records.size() < limit) {
    SPACE_TRY(const bool has_row, select.Step(), "read snapshots");
    if (!has_row) {
      break;
    }
    SPACE_TRY(SnapshotRecord record, ReadSnapshot(select), "read snapshots");
    records.push_back(std::move(record));
  }
  return records;
}

std::optional<SnapshotRecord> First(std::vector<SnapshotRecord> records) {
  return records.empty() ? std::nullopt : std::optional(std::move(records.front()));
}

}  // namespace

std::string PublicSnapshotName(const SnapshotRecord& record) {
  return record.name.empty() ? record.template_id : record.name_space + "/" + record.name;
}

std::string PublicSnapshotId(const SnapshotRecord& record) {
  return PublicSnapshotName(record) + ":" + record.tag;
}

Result<void> SnapshotStore::Insert(const SnapshotRecord& record) {
  if (record.kind == SnapshotKind::kKept) {
    SPACE_TRY(Statement untag,
              database_.Prepare("UPDATE snapshots SET tag='' WHERE kind='kept' AND team_id=? AND "
                                "template_id=? AND tag=?"),
              "store snapshot");
    untag.Bind(1, record.team_id).Bind(2, record.template_id).Bind(3, record.tag);
    SPACE_TRY_VOID(untag.Run(), "store snapshot");
  }
  SPACE_TRY(Statement insert,
            database_.Prepare("INSERT INTO snapshots (" + std::string(kColumns) +
                              ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"),
            "store snapshot");
  insert.Bind(1, record.id).Bind(2, KindName(record.kind)).Bind(3, record.team_id);
  insert.Bind(4, record.template_id).Bind(5, record.name_space).Bind(6, record.name);
  insert.Bind(7, record.tag).Bind(8, record.source_id).Bind(9, record.base_template_id);
  insert.Bind(10, record.fingerprint).Bind(11, static_cast<int64_t>(record.vcpus));
  insert.Bind(12, static_cast<int64_t>(record.memory_mib));
  insert.Bind(13, static_cast<int64_t>(record.disk_mib));
  insert.Bind(14, EncodeTextMap(record.environment)).Bind(15, record.envd_version);
  insert.Bind(16, record.agent_version).Bind(17, record.kernel_release);
  insert.Bind(18, int64_t{record.has_memory}).Bind(19, int64_t{record.has_working_set});
  insert.Bind(20, static_cast<int64_t>(record.stored_bytes)).Bind(21, record.measures);
  insert.Bind(22, record.created_at).Bind(23, record.used_at);
  SPACE_TRY_VOID(insert.Run(), "store snapshot " + record.id);
  return {};
}

Result<std::vector<SnapshotRecord>> SnapshotStore::Select(std::string_view condition,
                                                          const std::vector<std::string>& values) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT " + std::string(kColumns) + " FROM snapshots WHERE " +
                              std::string(condition) + " ORDER BY created_at DESC, id DESC"),
            "find snapshot");
  for (size_t at = 0; at < values.size(); ++at) {
    select.Bind(static_cast<int>(at) + 1, values[at]);
  }
  return ReadAll(select, SIZE_MAX);
}

Result<std::optional<SnapshotRecord>> SnapshotStore::Find(std::string_view id) {
  SPACE_TRY(auto found, Select("id=?", {std::string(id)}), "");
  return First(std::move(found));
}

Result<std::optional<SnapshotRecord>> SnapshotStore::FindKept(std::string_view team_id,
                                                              std::string_view template_or_name,
                                                              std::string_view tag) {
  SPACE_TRY(auto found,
            Select("kind='kept' AND team_id=?1 AND (template_id=?2 OR name=?2) AND tag=?3",
                   {std::string(team_id), std::string(template_or_name), std::string(tag)}),
            "");
  return First(std::move(found));
}

Result<std::optional<SnapshotRecord>> SnapshotStore::FindVariant(std::string_view fingerprint) {
  SPACE_TRY(auto found, Select("kind='template' AND fingerprint=?", {std::string(fingerprint)}),
            "");
  return First(std::move(found));
}

Result<std::vector<SnapshotRecord>> SnapshotStore::OfKind(SnapshotKind kind) {
  return Select("kind=?", {std::string(KindName(kind))});
}

Result<SnapshotPage> SnapshotStore::List(const SnapshotQuery& query) {
  std::string sql = "SELECT " + std::string(kColumns) +
                    " FROM snapshots WHERE kind='kept' AND tag<>'' AND team_id=?1";
  sql += query.source_id ? " AND source_id=?2" : "";
  sql += query.name_space ? " AND name_space=?3" : "";
  sql += query.name ? " AND (template_id=?4 OR name=?4)" : "";
  sql += query.tag ? " AND tag=?5" : "";
  sql += query.after ? " AND (created_at, id) < (?6, ?7)" : "";
  sql += " ORDER BY created_at DESC, id DESC";
  SPACE_TRY(Statement select, database_.Prepare(sql), "list snapshots");
  select.Bind(1, query.team_id);
  for (const auto& [position, value] :
       {std::pair(2, &query.source_id), std::pair(3, &query.name_space), std::pair(4, &query.name),
        std::pair(5, &query.tag)}) {
    if (*value) {
      select.Bind(position, **value);
    }
  }
  if (query.after) {
    select.Bind(6, query.after->first).Bind(7, query.after->second);
  }
  SnapshotPage page;
  SPACE_TRY(page.snapshots, ReadAll(select, query.limit + 1), "list snapshots");
  if (page.snapshots.size() > query.limit) {
    page.has_more = true;
    page.snapshots.pop_back();
  }
  return page;
}

Result<void> SnapshotStore::MarkUsed(std::string_view id, Micros now) {
  SPACE_TRY(Statement update, database_.Prepare("UPDATE snapshots SET used_at=? WHERE id=?"),
            "mark snapshot");
  update.Bind(1, now).Bind(2, id);
  return update.Run();
}

Result<void> SnapshotStore::SetWorkingSet(std::string_view id, bool has_it) {
  SPACE_TRY(Statement update,
            database_.Prepare("UPDATE snapshots SET has_working_set=? WHERE id=?"),
            "mark snapshot");
  update.Bind(1, int64_t{has_it}).Bind(2, id);
  return update.Run();
}

Result<bool> SnapshotStore::Delete(std::string_view id) {
  SPACE_TRY(Statement remove, database_.Prepare("DELETE FROM snapshots WHERE id=?"),
            "delete snapshot");
  remove.Bind(1, id);
  SPACE_TRY_VOID(remove.Run(), "delete snapshot " + std::string(id));
  return database_.changed_rows() == 1;
}

}  // namespace space
