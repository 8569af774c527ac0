#include "catalog/sandbox_store.h"

#include <algorithm>
#include <utility>

#include "catalog/json.h"

namespace space {
namespace {

// Order of ReadRecord and BindRecord.
constexpr std::string_view kColumns =
    "id, team_id, template_id, alias, state, vcpus, memory_mib, disk_mib, created_at, started_at, "
    "end_at, ended_at, timeout_seconds, metadata, network, allow_internet, envd_version, "
    "envd_token, traffic_token, kernel_release, agent_version, vmm_pid, vmm_start_ticks, "
    "launch_us, hello_us, ready_us, death_reason, death_detail, last_serial_log, last_vmm_log, "
    "environment, auto_pause, auto_pause_keeps_memory, auto_resume, source_id, snapshot_id, "
    "next_top, origin, last_measures";

Result<SandboxRecord> ReadRecord(const Statement& row) {
  SandboxRecord record;
  record.id = row.Text(0);
  record.team_id = row.Text(1);
  record.template_id = row.Text(2);
  record.alias = row.Text(3);
  SPACE_TRY(record.state, ParseSandboxState(row.Text(4)), "read sandbox " + record.id);
  record.vcpus = static_cast<uint32_t>(row.Number(5));
  record.memory_mib = static_cast<uint64_t>(row.Number(6));
  record.disk_mib = static_cast<uint64_t>(row.Number(7));
  record.created_at = row.Number(8);
  record.started_at = row.Number(9);
  record.end_at = row.Number(10);
  record.ended_at = row.MaybeNumber(11);
  record.timeout_seconds = row.Number(12);
  SPACE_TRY(record.metadata, DecodeTextMap(row.Text(13)), "read metadata of " + record.id);
  record.network = row.Text(14);
  if (const auto allow = row.MaybeNumber(15)) {
    record.allow_internet = *allow != 0;
  }
  record.envd_version = row.Text(16);
  record.envd_token = row.Text(17);
  record.traffic_token = row.Text(18);
  record.kernel_release = row.Text(19);
  record.agent_version = row.Text(20);
  record.vmm_pid = row.Number(21);
  record.vmm_start_ticks = row.Number(22);
  record.launch_us = row.Number(23);
  record.hello_us = row.Number(24);
  record.ready_us = row.Number(25);
  record.death_reason = row.Text(26);
  record.death_detail = row.Text(27);
  record.last_serial_log = row.Text(28);
  record.last_vmm_log = row.Text(29);
  SPACE_TRY(record.environment, DecodeTextMap(row.Text(30)), "read environment of " + record.id);
  record.auto_pause = row.Number(31) != 0;
  record.auto_pause_keeps_memory = row.Number(32) != 0;
  record.auto_resume = row.Number(33) != 0;
  record.source_id = row.Text(34);
  record.snapshot_id = row.Text(35);
  record.next_top = row.Text(36);
  record.origin = row.Text(37);
  record.last_measures = row.Text(38);
  return record;
}

void BindRecord(Statement& insert, const SandboxRecord& record) {
  insert.Bind(1, record.id).Bind(2, record.team_id).Bind(3, record.template_id);
  insert.Bind(4, record.alias).Bind(5, SandboxStateName(record.state));
  insert.Bind(6, static_cast<int64_t>(record.vcpus));
  insert.Bind(7, static_cast<int64_t>(record.memory_mib));
  insert.Bind(8, static_cast<int64_t>(record.disk_mib));
  insert.Bind(9, record.created_at).Bind(10, record.started_at).Bind(11, record.end_at);
  insert.Bind(12, record.ended_at).Bind(13, record.timeout_seconds);
  insert.Bind(14, EncodeTextMap(record.metadata)).Bind(15, record.network);
  std::optional<int64_t> allow;
  if (record.allow_internet) {
    allow = *record.allow_internet ? 1 : 0;
  }
  insert.Bind(16, allow).Bind(17, record.envd_version).Bind(18, record.envd_token);
  insert.Bind(19, record.traffic_token).Bind(20, record.kernel_release);
  insert.Bind(21, record.agent_version).Bind(22, record.vmm_pid).Bind(23, record.vmm_start_ticks);
  insert.Bind(24, record.launch_us).Bind(25, record.hello_us).Bind(26, record.ready_us);
  insert.Bind(27, record.death_reason).Bind(28, record.death_detail);
  insert.Bind(29, record.last_serial_log).Bind(30, record.last_vmm_log);
  insert.Bind(31, EncodeTextMap(record.environment)).Bind(32, int64_t{record.auto_pause});
  insert.Bind(33, int64_t{record.auto_pause_keeps_memory}).Bind(34, int64_t{record.auto_resume});
  insert.Bind(35, record.source_id).Bind(36, record.snapshot_id).Bind(37, record.next_top);
  insert.Bind(38, record.origin).Bind(39, record.last_measures);
}

bool HasAll(const TextMap& metadata, const TextMap& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& pair) {
    const auto found = metadata.find(pair.first);
    return found != metadata.end() && found->second == pair.second;
  });
}

std::string StateList(const std::vector<SandboxState>& states) {
  std::string list;
  for (const SandboxState state : states) {
    list += (list.empty() ? "'" : ",'") + std::string(SandboxStateName(state)) + "'";
  }
  return list;
}

// The text differs only by which filters are there, so that few statements are prepared.
std::string ListSql(const SandboxQuery& query) {
  std::string sql = "SELECT " + std::string(kColumns) + " FROM sandboxes WHERE state IN (" +
                    StateList(query.states) + ")";
  sql += query.team_id.empty() ? " AND ?1=''" : " AND team_id=?1";
  sql += query.template_id ? " AND template_id=?2" : "";
  sql += query.started_after ? " AND started_at>=?3" : "";
  if (query.after) {
    sql +=
        query.ascending ? " AND (started_at, id) > (?4, ?5)" : " AND (started_at, id) < (?4, ?5)";
  }
  sql += query.ascending ? " ORDER BY started_at, id" : " ORDER BY started_at DESC, id DESC";
  return sql;
}

}  // namespace

Result<void> SandboxStore::Insert(const SandboxRecord& record) {
  SPACE_TRY(
      Statement insert,
      database_.Prepare("INSERT INTO sandboxes (" + std::string(kColumns) +
                        ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,"
                        "?,?,?,?,?,?,?,?,?)"),
      "store sandbox");
  BindRecord(insert, record);
  SPACE_TRY_VOID(insert.Run(), "store sandbox " + record.id);
  return {};
}

Result<void> SandboxStore::Write(const SandboxRecord& record, SandboxState from, SandboxState to) {
  SPACE_TRY(
      Statement update,
      database_.Prepare(
          "UPDATE sandboxes SET state=?, started_at=?, end_at=?, ended_at=?, "
          "envd_version=?, kernel_release=?, agent_version=?, vmm_pid=?, "
          "vmm_start_ticks=?, launch_us=?, hello_us=?, ready_us=?, death_reason=?, "
          "death_detail=?, last_serial_log=?, last_vmm_log=?, snapshot_id=?, next_top=?, origin=?, "
          "last_measures=? "
          "WHERE id=? AND state=?"),
      "store sandbox");
  update.Bind(1, SandboxStateName(to)).Bind(2, record.started_at).Bind(3, record.end_at);
  update.Bind(4, record.ended_at).Bind(5, record.envd_version).Bind(6, record.kernel_release);
  update.Bind(7, record.agent_version).Bind(8, record.vmm_pid).Bind(9, record.vmm_start_ticks);
  update.Bind(10, record.launch_us).Bind(11, record.hello_us).Bind(12, record.ready_us);
  update.Bind(13, record.death_reason).Bind(14, record.death_detail);
  update.Bind(15, record.last_serial_log).Bind(16, record.last_vmm_log);
  update.Bind(17, record.snapshot_id).Bind(18, record.next_top);
  update.Bind(19, record.origin).Bind(20, record.last_measures);
  update.Bind(21, record.id).Bind(22, SandboxStateName(from));
  SPACE_TRY_VOID(update.Run(), "store sandbox " + record.id);
  if (database_.changed_rows() != 1) {
    return Fail(ErrorCode::kConflict,
                "sandbox is not in state " + std::string(SandboxStateName(from)), record.id);
  }
  return {};
}

Result<void> SandboxStore::Move(SandboxRecord& record, SandboxState to) {
  SPACE_TRY_VOID(CheckMove(record.state, to), "sandbox " + record.id);
  SPACE_TRY_VOID(Write(record, record.state, to), "move sandbox");
  record.state = to;
  return {};
}

Result<void> SandboxStore::Update(const SandboxRecord& record) {
  return Write(record, record.state, record.state);
}

Result<std::optional<SandboxRecord>> SandboxStore::Find(std::string_view id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT " + std::string(kColumns) + " FROM sandboxes WHERE id=?"),
            "find sandbox");
  select.Bind(1, id);
  SPACE_TRY(const bool has_row, select.Step(), "find sandbox");
  if (!has_row) {
    return std::optional<SandboxRecord>();
  }
  SPACE_TRY(SandboxRecord record, ReadRecord(select), "find sandbox");
  return std::optional(std::move(record));
}

Result<SandboxPage> SandboxStore::List(const SandboxQuery& query) {
  SandboxPage page;
  if (query.states.empty()) {
    return page;
  }
  SPACE_TRY(Statement select, database_.Prepare(ListSql(query)), "list sandboxes");
  select.Bind(1, query.team_id);
  if (query.template_id) {
    select.Bind(2, *query.template_id);
  }
  if (query.started_after) {
    select.Bind(3, *query.started_after);
  }
  if (query.after) {
    select.Bind(4, query.after->first).Bind(5, query.after->second);
  }
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "list sandboxes");
    if (!has_row) {
      return page;
    }
    SPACE_TRY(SandboxRecord record, ReadRecord(select), "list sandboxes");
    if (!HasAll(record.metadata, query.metadata)) {
      continue;
    }
    if (page.sandboxes.size() == query.limit) {
      page.has_more = true;
      return page;
    }
    page.sandboxes.push_back(std::move(record));
  }
}

Result<std::vector<SandboxRecord>> SandboxStore::Live() {
  SandboxQuery query;
  for (const ShownState shown : {ShownState::kHidden, ShownState::kRunning, ShownState::kPaused}) {
    for (const SandboxState state : StatesShownAs(shown)) {
      if (IsLive(state)) {
        query.states.push_back(state);
      }
    }
  }
  query.limit = SIZE_MAX;
  SPACE_TRY(SandboxPage page, List(query), "list live sandboxes");
  return std::move(page.sandboxes);
}

Result<int64_t> SandboxStore::Count(std::string_view team_id, SandboxState state) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT count(*) FROM sandboxes WHERE team_id=? AND state=?"),
            "count sandboxes");
  select.Bind(1, team_id).Bind(2, SandboxStateName(state));
  SPACE_TRY([[maybe_unused]] const bool has_row, select.Step(), "count sandboxes");
  return select.Number(0);
}

Result<std::vector<std::string>> SandboxStore::LiveOfTemplate(std::string_view template_id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id FROM sandboxes WHERE template_id=? AND "
                              "state<>'dead' ORDER BY id LIMIT 20"),
            "find users of template");
  select.Bind(1, template_id);
  std::vector<std::string> ids;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "find users of template");
    if (!has_row) {
      return ids;
    }
    ids.push_back(select.Text(0));
  }
}

Result<SandboxStore::Spawned> SandboxStore::CountOfTemplate(std::string_view team_id,
                                                            std::string_view template_id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT count(*), max(created_at) FROM sandboxes WHERE "
                              "template_id=? AND team_id=?"),
            "count sandboxes of template");
  select.Bind(1, template_id).Bind(2, team_id);
  SPACE_TRY([[maybe_unused]] const bool has_row, select.Step(), "count sandboxes of template");
  return Spawned{select.Number(0), select.MaybeNumber(1)};
}

Result<int64_t> SandboxStore::ForgetDead(Micros before) {
  SPACE_TRY(Statement forget,
            database_.Prepare("DELETE FROM sandboxes WHERE state='dead' AND ended_at<?"),
            "forget dead sandboxes");
  forget.Bind(1, before);
  SPACE_TRY_VOID(forget.Run(), "forget dead sandboxes");
  return database_.changed_rows();
}

}  // namespace space
