#include "catalog/key_store.h"

#include <array>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/random.h"

namespace space {
namespace {

constexpr std::string_view kPrefix = "e2b_";
constexpr size_t kIdDigits = 8;
constexpr size_t kKeyDigits = 40;
constexpr Micros kUseGranularity = 60'000'000;
constexpr size_t kMaxName = 100;

struct ScopeRow {
  Scope scope;
  std::string_view name;
};
constexpr std::array<ScopeRow, 3> kScopes = {{
    {Scope::kUse, "use"},
    {Scope::kApprove, "approve"},
    {Scope::kAdmin, "admin"},
}};

// The id goes in as salt, so that equal hashes of two keys would say nothing.
std::string HashKey(std::string_view id, std::string_view secret) {
  const std::string text = std::string(id) + ":" + std::string(secret);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  ::SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) {
    hex.push_back(kHex[byte >> 4]);
    hex.push_back(kHex[byte & 15]);
  }
  return hex;
}

bool LooksLikeKey(std::string_view secret) {
  return secret.size() == kPrefix.size() + kKeyDigits && secret.starts_with(kPrefix) &&
         secret.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

Result<ApiKey> ReadKey(const Statement& row) {
  ApiKey key;
  key.id = row.Text(0);
  key.team_id = row.Text(1);
  key.name = row.Text(2);
  SPACE_TRY(key.scope, ParseScope(row.Text(3)), "read key");
  key.created_at = row.Number(4);
  key.last_used_at = row.MaybeNumber(5);
  key.revoked_at = row.MaybeNumber(6);
  return key;
}

}  // namespace

std::string_view ScopeName(Scope scope) {
  for (const ScopeRow& row : kScopes) {
    if (row.scope == scope) {
      return row.name;
    }
  }
  return "use";
}

Result<Scope> ParseScope(std::string_view name) {
  for (const ScopeRow& row : kScopes) {
    if (row.name == name) {
      return row.scope;
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "scope must be admin, use or approve, not", name);
}

bool Allows(Scope held, Scope needed) { return held == Scope::kAdmin || held == needed; }

Result<Team> KeyStore::CreateTeam(std::string name, Micros now) {
  Team team{RandomUuid(), std::move(name), now};
  SPACE_TRY(Transaction transaction, Transaction::Begin(database_, Durability::kDurable),
            "create team");
  {
    SPACE_TRY(Statement insert, database_.Prepare("INSERT INTO teams VALUES (?,?,?)"),
              "create team");
    insert.Bind(1, team.id).Bind(2, team.name).Bind(3, team.created_at);
    SPACE_TRY_VOID(insert.Run(), "create team " + team.name);
  }
  SPACE_TRY_VOID(transaction.Commit(), "create team");
  return team;
}

Result<std::optional<Team>> KeyStore::FindTeam(std::string_view name) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id, name, created_at FROM teams WHERE name=?"), "find team");
  select.Bind(1, name);
  SPACE_TRY(const bool has_row, select.Step(), "find team");
  if (!has_row) {
    return std::optional<Team>();
  }
  return Team{select.Text(0), select.Text(1), select.Number(2)};
}

Result<std::optional<Team>> KeyStore::FindTeamById(std::string_view id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id, name, created_at FROM teams WHERE id=?"), "find team");
  select.Bind(1, id);
  SPACE_TRY(const bool has_row, select.Step(), "find team");
  if (!has_row) {
    return std::optional<Team>();
  }
  return Team{select.Text(0), select.Text(1), select.Number(2)};
}

Result<NewKey> KeyStore::Create(const std::string& team_id, std::string name, Scope scope,
                                Micros now) {
  if (name.empty() || name.size() > kMaxName) {
    return Fail(ErrorCode::kInvalidArgument, "name of the key must have 1 to 100 bytes");
  }
  NewKey made;
  const std::string digits = RandomHex(kKeyDigits / 2);
  made.secret = std::string(kPrefix) + digits;
  made.key.id = digits.substr(0, kIdDigits);
  made.key.team_id = team_id;
  made.key.name = std::move(name);
  made.key.scope = scope;
  made.key.created_at = now;
  SPACE_TRY(Transaction transaction, Transaction::Begin(database_, Durability::kDurable),
            "create key");
  {
    SPACE_TRY(Statement insert,
              database_.Prepare("INSERT INTO api_keys (id, team_id, name, hash, scope, created_at) "
                                "VALUES (?,?,?,?,?,?)"),
              "create key");
    insert.Bind(1, made.key.id).Bind(2, team_id).Bind(3, made.key.name);
    insert.Bind(4, HashKey(made.key.id, made.secret)).Bind(5, ScopeName(scope)).Bind(6, now);
    SPACE_TRY_VOID(insert.Run(), "create key");
  }
  SPACE_TRY_VOID(transaction.Commit(), "create key");
  return made;
}

Result<std::optional<ApiKey>> KeyStore::Authenticate(std::string_view secret, Micros now) {
  if (!LooksLikeKey(secret)) {
    return std::optional<ApiKey>();
  }
  const std::string_view id = secret.substr(kPrefix.size(), kIdDigits);
  ApiKey key;
  std::string hash;
  {
    SPACE_TRY(Statement select,
              database_.Prepare("SELECT id, team_id, name, scope, created_at, last_used_at, "
                                "revoked_at, hash FROM api_keys WHERE id=?"),
              "check key");
    select.Bind(1, id);
    SPACE_TRY(const bool has_row, select.Step(), "check key");
    if (!has_row) {
      return std::optional<ApiKey>();
    }
    SPACE_TRY(key, ReadKey(select), "check key");
    hash = select.Text(7);
  }
  const std::string offered = HashKey(id, secret);
  const bool is_equal = hash.size() == offered.size() &&
                        ::CRYPTO_memcmp(hash.data(), offered.data(), hash.size()) == 0;
  if (!is_equal || key.revoked_at.has_value()) {
    return std::optional<ApiKey>();
  }
  if (!key.last_used_at || now - *key.last_used_at >= kUseGranularity) {
    SPACE_TRY(Statement update, database_.Prepare("UPDATE api_keys SET last_used_at=? WHERE id=?"),
              "note use of key");
    update.Bind(1, now).Bind(2, id);
    SPACE_TRY_VOID(update.Run(), "note use of key");
    key.last_used_at = now;
  }
  return key;
}

Result<std::vector<ApiKey>> KeyStore::List(const std::string& team_id) {
  SPACE_TRY(Statement select,
            database_.Prepare("SELECT id, team_id, name, scope, created_at, last_used_at, "
                              "revoked_at FROM api_keys WHERE team_id=? ORDER BY created_at, id"),
            "list keys");
  select.Bind(1, team_id);
  std::vector<ApiKey> keys;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "list keys");
    if (!has_row) {
      return keys;
    }
    SPACE_TRY(ApiKey key, ReadKey(select), "list keys");
    keys.push_back(std::move(key));
  }
}

Result<void> KeyStore::Revoke(const std::string& team_id, std::string_view id, Micros now) {
  SPACE_TRY(Transaction transaction, Transaction::Begin(database_, Durability::kDurable),
            "revoke key");
  {
    SPACE_TRY(Statement update,
              database_.Prepare("UPDATE api_keys SET revoked_at=coalesce(revoked_at, ?) "
                                "WHERE id=? AND team_id=?"),
              "revoke key");
    update.Bind(1, now).Bind(2, id).Bind(3, team_id);
    SPACE_TRY_VOID(update.Run(), "revoke key");
  }
  if (database_.changed_rows() == 0) {
    return Fail(ErrorCode::kNotFound, "no such key", id);
  }
  return transaction.Commit();
}

}  // namespace space
