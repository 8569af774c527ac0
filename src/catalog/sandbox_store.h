// The table of sandboxes. States change through Move alone, which asks sandbox_state.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

// Which sandboxes, newest first unless `ascending`; ties by id in the same direction.
struct SandboxQuery {
  std::string team_id;  // empty: all teams
  std::vector<SandboxState> states;
  std::optional<std::string> template_id;
  std::optional<Micros> started_after;  // inclusive
  TextMap metadata;                     // all pairs must be there
  bool ascending = false;
  // The last one of the page before: (started_at, id).
  std::optional<std::pair<Micros, std::string>> after;
  size_t limit = 100;
};

struct SandboxPage {
  std::vector<SandboxRecord> sandboxes;
  bool has_more = false;
};

class SandboxStore {
 public:
  explicit SandboxStore(Database& database) : database_(database) {}

  // In the record's state: kCreating, or kRunning (or kDead) when nothing was stored before. Fast,
  // not synced: a power cut ends the VM as well.
  Result<void> Insert(const SandboxRecord& record);
  // Changes the state and writes all other fields that may change, in one step. The record's own
  // state is what is stored now; it is set to `to` on success.
  //   errors: kConflict for an illegal move, or when the stored state is another one
  Result<void> Move(SandboxRecord& record, SandboxState to);
  // Fields that change within a state (end_at, vmm_pid, ...).
  Result<void> Update(const SandboxRecord& record);

  Result<std::optional<SandboxRecord>> Find(std::string_view id);
  Result<SandboxPage> List(const SandboxQuery& query);
  Result<std::vector<SandboxRecord>> Live();
  Result<int64_t> Count(std::string_view team_id, SandboxState state);
  // Ids of at most 20 that live and came from this template.
  Result<std::vector<std::string>> LiveOfTemplate(std::string_view template_id);
  // Of the team's sandboxes that are not forgotten.
  struct Spawned {
    int64_t count = 0;
    std::optional<Micros> newest_at;
  };
  Result<Spawned> CountOfTemplate(std::string_view team_id, std::string_view template_id);
  // Forgets sandboxes that died before `before`; their number.
  Result<int64_t> ForgetDead(Micros before);

 private:
  Result<void> Write(const SandboxRecord& record, SandboxState from, SandboxState to);
  Database& database_;
};

}  // namespace space
