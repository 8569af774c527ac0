// SQLite behind two small classes: the open database and a prepared statement. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace space {

// A prepared statement in use: bind, then Step until it says false. Going out of scope resets it,
// so that it can be taken again; it must not outlive its Database.
class [[nodiscard]] Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement)
      : database_(database), statement_(statement) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Positions from 1. Bound text is copied. A nullopt is SQL's NULL.
  Statement& Bind(int position, std::string_view text);
  Statement& Bind(int position, const std::string& text);
  Statement& Bind(int position, const char* text);
  Statement& Bind(int position, int64_t number);
  Statement& Bind(int position, const std::optional<int64_t>& number);

  // True when there is a row; errors of binding come out here too. kConflict for a broken
  // constraint.
  Result<bool> Step();
  // For statements without rows.
  Result<void> Run();
  // Ready to be bound and run again.
  void Reset();

  // Columns from 0, of the row that Step found.
  std::string Text(int column) const;
  int64_t Number(int column) const;
  std::optional<int64_t> MaybeNumber(int column) const;

 private:
  sqlite3* database_;
  sqlite3_stmt* statement_;
  int first_error_ = 0;
};

class Database {
 public:
  // Opens or makes the file (mode 0600) in WAL mode; ":memory:" for tests.
  static Result<std::unique_ptr<Database>> Open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
  Database(Database&&) = delete;
  Database& operator=(Database&&) = delete;

  // Several statements without parameters.
  Result<void> Execute(const std::string& sql);
  // Prepared once per text and kept; a text must not be taken again while it is in use.
  Result<Statement> Prepare(std::string_view sql);
  // Rows that the last INSERT, UPDATE or DELETE changed.
  int64_t changed_rows() const;

 private:
  explicit Database(sqlite3* database) : database_(database) {}
  sqlite3* database_;
  std::map<std::string, sqlite3_stmt*, std::less<>> prepared_;
};

// kFast: committed, safe against a crash of ours, not against power loss (WAL without fsync).
// kDurable: on the disk when Commit returns.
enum class Durability { kFast, kDurable };

// Rolls back unless committed.
class [[nodiscard]] Transaction {
 public:
  static Result<Transaction> Begin(Database& database, Durability durability);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Result<void> Commit();

 private:
  Transaction(Database* database, Durability durability)
      : database_(database), durability_(durability) {}
  void Restore();
  Database* database_;
  Durability durability_;
};

}  // namespace space
