#include "catalog/layer_store.h"

#include <utility>

namespace space {
namespace {

constexpr std::string_view kSelect =
    "SELECT id, team_id, kind, form, storage, is_frozen, size_bytes, file_bytes, created_at "
    "FROM layers";

std::string_view UserKindName(LayerUser::Kind kind) {
  return kind == LayerUser::Kind::kSandbox ? "sandbox" : "snapshot";
}

LayerRecord ReadLayer(const Statement& row) {
  LayerRecord record;
  record.id = row.Text(0);
  record.team_id = row.Text(1);
  record.kind = row.Text(2) == "memory" ? LayerKind::kMemory : LayerKind::kDisk;
  record.form = row.Text(3) == "raw" ? LayerForm::kRaw : LayerForm::kSparse;
  record.storage = row.Text(4) == "memory" ? LayerStorage::kMemory : LayerStorage::kFile;
  record.is_frozen = row.Number(5) != 0;
  record.size_bytes = static_cast<uint64_t>(row.Number(6));
  record.file_bytes = static_cast<uint64_t>(row.Number(7));
  record.created_at = row.Number(8);
  return record;
}

Result<std::vector<LayerRecord>> ReadAll(Statement select) {
  std::vector<LayerRecord> records;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "read layers");
    if (!has_row) {
      return records;
    }
    records.push_back(ReadLayer(select));
  }
}

}  // namespace

Result<void> LayerStore::Insert(const LayerRecord& record) {
  SPACE_TRY(Statement insert,
            database_.Prepare("INSERT OR IGNORE INTO layers VALUES (?,?,?,?,?,?,?,?,?)"),
            "store layer");
  insert.Bind(1, record.id).Bind(2, record.team_id);
  insert.Bind(3, record.kind == LayerKind::kMemory ? "memory" : "disk");
  insert.Bind(4, record.form == LayerForm::kRaw ? "raw" : "sparse");
  insert.Bind(5, record.storage == LayerStorage::kMemory ? "memory" : "file");
  insert.Bind(6, int64_t{record.is_frozen}).Bind(7, static_cast<int64_t>(record.size_bytes));
  insert.Bind(8, static_cast<int64_t>(record.file_bytes)).Bind(9, record.created_at);
  SPACE_TRY_VOID(insert.Run(), "store layer " + record.id);
  return {};
}

Result<void> LayerStore::Freeze(std::string_view id, uint64_t file_bytes) {
  SPACE_TRY(Statement update,
            database_.Prepare("UPDATE layers SET is_frozen=1, file_bytes=? WHERE id=?"),
            "freeze layer");
  update.Bind(1, static_cast<int64_t>(file_bytes)).Bind(2, id);
  SPACE_TRY_VOID(update.Run(), "freeze layer");
  if (database_.changed_rows() != 1) {
    return Fail(ErrorCode::kNotFound, "no such layer", id);
  }
  return {};
}

Result<std::optional<LayerRecord>> LayerStore::Find(std::string_view id) {
  SPACE_TRY(Statement select, database_.Prepare(std::string(kSelect) + " WHERE id=?"),
            "find layer");
  select.Bind(1, id);
  SPACE_TRY(const bool has_row, select.Step(), "find layer");
  return has_row ? std::optional(ReadLayer(select)) : std::nullopt;
}

Result<std::vector<LayerRecord>> LayerStore::List() {
  SPACE_TRY(Statement select, database_.Prepare(kSelect), "list layers");
  return ReadAll(std::move(select));
}

Result<void> LayerStore::Forget(const LayerUser& user) {
  SPACE_TRY(Statement forget,
            database_.Prepare("DELETE FROM layer_uses WHERE user_kind=? AND user_id=?"),
            "forget use of layers");
  forget.Bind(1, UserKindName(user.kind)).Bind(2, user.id);
  return forget.Run();
}

Result<void> LayerStore::SetChains(const LayerUser& user, std::string_view team_id,
                                   const Chains& chains) {
  SPACE_TRY_VOID(Forget(user), "use layers");
  SPACE_TRY(Statement owner, database_.Prepare("SELECT team_id FROM layers WHERE id=?"),
            "use layers");
  SPACE_TRY(Statement insert, database_.Prepare("INSERT INTO layer_uses VALUES (?,?,?,?,?)"),
            "use layers");
  for (const auto& [chain, ids] : chains) {
    for (size_t place = 0; place < ids.size(); ++place) {
      owner.Bind(1, ids[place]);
      SPACE_TRY(const bool is_known, owner.Step(), "use layers");
      if (!is_known) {
        return Fail(ErrorCode::kNotFound, "no such layer", ids[place]);
      }
      const std::string team = owner.Text(0);
      owner.Reset();
      if (!team.empty() && team != team_id) {
        return Fail(ErrorCode::kPermissionDenied, "layer belongs to another team", ids[place]);
      }
      insert.Bind(1, UserKindName(user.kind)).Bind(2, user.id).Bind(3, chain);
      insert.Bind(4, static_cast<int64_t>(place)).Bind(5, ids[place]);
      SPACE_TRY_VOID(insert.Run(), "use layer " + ids[place]);
      insert.Reset();
    }
  }
  return {};
}

Result<Chains> LayerStore::ChainsOf(const LayerUser& user) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT chain, layer_id FROM layer_uses WHERE user_kind=? AND "
                              "user_id=? ORDER BY chain, place"),
            "read chains");
  select.Bind(1, UserKindName(user.kind)).Bind(2, user.id);
  Chains chains;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "read chains");
    if (!has_row) {
      return chains;
    }
    chains[select.Text(0)].push_back(select.Text(1));
  }
}

Result<std::vector<std::string>> LayerStore::UsersOf(std::string_view layer_id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT DISTINCT user_kind, user_id FROM layer_uses WHERE "
                              "layer_id=? ORDER BY user_kind, user_id"),
            "find users of layer");
  select.Bind(1, layer_id);
  std::vector<std::string> users;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "find users of layer");
    if (!has_row) {
      return users;
    }
    users.push_back(select.Text(0) + " " + select.Text(1));
  }
}

Result<void> LayerStore::Delete(std::string_view id) {
  SPACE_TRY(const std::vector<std::string> users, UsersOf(id), "delete layer");
  if (!users.empty()) {
    std::string names;
    for (const std::string& user : users) {
      names += (names.empty() ? "" : ", ") + user;
    }
    return Fail(ErrorCode::kConflict,
                "layer " + std::string(id) + " is in use and cannot be deleted; users: " + names);
  }
  SPACE_TRY(Statement remove, database_.Prepare("DELETE FROM layers WHERE id=?"), "delete layer");
  remove.Bind(1, id);
  SPACE_TRY_VOID(remove.Run(), "delete layer");
  if (database_.changed_rows() != 1) {
    return Fail(ErrorCode::kNotFound, "no such layer", id);
  }
  return {};
}

Result<std::vector<LayerRecord>> LayerStore::TakeUnused() {
  SPACE_TRY(Statement select,
            database_.Prepare(std::string(kSelect) + " WHERE NOT EXISTS (SELECT 1 FROM layer_uses "
                                                     "WHERE layer_id=layers.id)"),
            "find unused layers");
  SPACE_TRY(std::vector<LayerRecord> unused, ReadAll(std::move(select)), "find unused layers");
  SPACE_TRY(Statement remove, database_.Prepare("DELETE FROM layers WHERE id=?"), "delete layer");
  for (const LayerRecord& layer : unused) {
    remove.Bind(1, layer.id);
    SPACE_TRY_VOID(remove.Run(), "delete layer " + layer.id);
    remove.Reset();
  }
  return unused;
}

}  // namespace space
