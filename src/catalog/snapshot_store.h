// The table of snapshots. Which layers they are made of: catalog/layer_store.h. Writes join the
// caller's transaction when there is one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

// Kept ones of a team that have a tag, newest first, ties by id downwards.
struct SnapshotQuery {
  std::string team_id;
  std::optional<std::string> source_id;
  std::optional<std::string> name_space;
  std::optional<std::string> name;  // or a template id
  std::optional<std::string> tag;
  // The last one of the page before: (created_at, id).
  std::optional<std::pair<Micros, std::string>> after;
  size_t limit = 100;
};

struct SnapshotPage {
  std::vector<SnapshotRecord> snapshots;
  bool has_more = false;
};

class SnapshotStore {
 public:
  explicit SnapshotStore(Database& database) : database_(database) {}

  // A kept one takes its name and tag from the one that had them: that one is left without a tag.
  Result<void> Insert(const SnapshotRecord& record);
  Result<std::optional<SnapshotRecord>> Find(std::string_view id);
  // A kept one of the team by template id or name, and tag.
  Result<std::optional<SnapshotRecord>> FindKept(std::string_view team_id,
                                                 std::string_view template_or_name,
                                                 std::string_view tag);
  Result<std::optional<SnapshotRecord>> FindVariant(std::string_view fingerprint);
  Result<std::vector<SnapshotRecord>> OfKind(SnapshotKind kind);
  Result<SnapshotPage> List(const SnapshotQuery& query);
  Result<void> MarkUsed(std::string_view id, Micros now);
  Result<void> SetWorkingSet(std::string_view id, bool has_it);
  // False when there was none.
  Result<bool> Delete(std::string_view id);

 private:
  Result<std::vector<SnapshotRecord>> Select(std::string_view condition,
                                             const std::vector<std::string>& values);
  Database& database_;
};

}  // namespace space
