// The tables of layers and of who uses them. What is used cannot be deleted: a foreign key says so
// as well. Writes join the caller's transaction when there is one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

class LayerStore {
 public:
  explicit LayerStore(Database& database) : database_(database) {}

  // Fine when it is there already.
  Result<void> Insert(const LayerRecord& record);
  // From now on it is never written again.
  Result<void> Freeze(std::string_view id, uint64_t file_bytes);
  Result<std::optional<LayerRecord>> Find(std::string_view id);
  Result<std::vector<LayerRecord>> List();

  // What `user`, of `team_id` (empty: the operator), uses from now on instead of what it used.
  //   errors: kPermissionDenied naming a layer of another team, kNotFound for an unknown one
  Result<void> SetChains(const LayerUser& user, std::string_view team_id, const Chains& chains);
  Result<Chains> ChainsOf(const LayerUser& user);
  // "sandbox i...", "snapshot ...".
  Result<std::vector<std::string>> UsersOf(std::string_view layer_id);

  //   errors: kConflict naming the users, kNotFound
  Result<void> Delete(std::string_view id);
  // `user` uses nothing any more.
  Result<void> Forget(const LayerUser& user);
  // Layers that nobody uses are forgotten and answered.
  Result<std::vector<LayerRecord>> TakeUnused();

 private:
  Database& database_;
};

}  // namespace space
