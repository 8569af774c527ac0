// Teams and API keys. A key is shown once, when it is made; the catalog holds its hash.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

std::string_view ScopeName(Scope scope);  // "admin", "use", "approve"
Result<Scope> ParseScope(std::string_view name);
bool Allows(Scope held, Scope needed);

struct NewKey {
  ApiKey key;
  std::string secret;  // "e2b_" and 40 hex digits, 128 bits of them secret
};

class KeyStore {
 public:
  explicit KeyStore(Database& database) : database_(database) {}

  // kConflict when the name is taken. Durable, like every write here.
  Result<Team> CreateTeam(std::string name, Micros now);
  Result<std::optional<Team>> FindTeam(std::string_view name);
  Result<std::optional<Team>> FindTeamById(std::string_view id);

  Result<NewKey> Create(const std::string& team_id, std::string name, Scope scope, Micros now);
  // The key that `secret` is, if it is known and not revoked; hashes are compared in constant time.
  // Writes the time of use at most once a minute, without syncing.
  Result<std::optional<ApiKey>> Authenticate(std::string_view secret, Micros now);
  Result<std::vector<ApiKey>> List(const std::string& team_id);
  // kNotFound for an unknown id, also for one of another team; revoking twice is fine.
  Result<void> Revoke(const std::string& team_id, std::string_view id, Micros now);

 private:
  Database& database_;
};

}  // namespace space
