#include "catalog/database.h"

#include <sys/stat.h>

#include <utility>

#include <sqlite3.h>

namespace space {
namespace {

tl::unexpected<Error> FailSqlite(sqlite3* database, int code, std::string_view doing) {
  const int primary = code & 0xff;
  ErrorCode ours = ErrorCode::kIo;
  if (primary == SQLITE_CONSTRAINT) {
    ours = ErrorCode::kConflict;
  } else if (primary == SQLITE_FULL) {
    ours = ErrorCode::kExhausted;
  } else if (primary == SQLITE_ERROR || primary == SQLITE_MISUSE || primary == SQLITE_RANGE) {
    ours = ErrorCode::kInternal;
  }
  return Fail(ours, std::string(doing) + ": catalog: " + sqlite3_errmsg(database));
}

}  // namespace

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_),
      statement_(std::exchange(other.statement_, nullptr)),
      first_error_(other.first_error_) {}

Statement::~Statement() {
  if (statement_ != nullptr) {
    Reset();
  }
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Statement& Statement::Bind(int position, std::string_view text) {
  const int code = sqlite3_bind_text64(statement_, position, text.data(), text.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8);
  first_error_ = first_error_ == 0 ? code : first_error_;
  return *this;
}

Statement& Statement::Bind(int position, const std::string& text) {
  return Bind(position, std::string_view(text));
}

Statement& Statement::Bind(int position, const char* text) {
  return Bind(position, std::string_view(text));
}

Statement& Statement::Bind(int position, int64_t number) {
  const int code = sqlite3_bind_int64(statement_, position, number);
  first_error_ = first_error_ == 0 ? code : first_error_;
  return *this;
}

Statement& Statement::Bind(int position, const std::optional<int64_t>& number) {
  if (number) {
    return Bind(position, *number);
  }
  const int code = sqlite3_bind_null(statement_, position);
  first_error_ = first_error_ == 0 ? code : first_error_;
  return *this;
}

Result<bool> Statement::Step() {
  if (first_error_ != SQLITE_OK) {
    return FailSqlite(database_, first_error_, "bind");
  }
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) {
    return true;
  }
  if (code == SQLITE_DONE) {
    return false;
  }
  return FailSqlite(database_, code, "run statement");
}

Result<void> Statement::Run() {
  SPACE_TRY([[maybe_unused]] const bool has_row, Step(), "catalog");
  return {};
}

std::string Statement::Text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) {
    return {};
  }
  return std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

int64_t Statement::Number(int column) const { return sqlite3_column_int64(statement_, column); }

std::optional<int64_t> Statement::MaybeNumber(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) {
    return std::nullopt;
  }
  return Number(column);
}

Result<std::unique_ptr<Database>> Database::Open(const std::string& path) {
  // SQLite gives its -wal and -shm files the mode of the database.
  const mode_t old_mask = ::umask(0077);
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  ::umask(old_mask);
  if (code != SQLITE_OK) {
    auto failure = FailSqlite(raw, code, "open " + path);
    sqlite3_close_v2(raw);
    return failure;
  }
  std::unique_ptr<Database> database(new Database(raw));
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, 5000);
  SPACE_TRY_VOID(database->Execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
                                   "PRAGMA foreign_keys=ON; PRAGMA trusted_schema=OFF;"),
                 "open " + path);
  return database;
}

Database::~Database() {
  for (const auto& [text, statement] : prepared_) {
    sqlite3_finalize(statement);
  }
  sqlite3_close_v2(database_);
}

Result<void> Database::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) {
    return FailSqlite(database_, code, "execute");
  }
  return {};
}

Result<Statement> Database::Prepare(std::string_view sql) {
  const auto found = prepared_.find(sql);
  if (found != prepared_.end()) {
    return Statement(database_, found->second);
  }
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) {
    return FailSqlite(database_, code, "prepare");
  }
  prepared_.emplace(sql, statement);
  return Statement(database_, statement);
}

int64_t Database::changed_rows() const { return sqlite3_changes64(database_); }

Result<Transaction> Transaction::Begin(Database& database, Durability durability) {
  // In WAL mode FULL syncs the log at each commit; NORMAL only at checkpoints.
  if (durability == Durability::kDurable) {
    SPACE_TRY_VOID(database.Execute("PRAGMA synchronous=FULL"), "begin transaction");
  }
  Transaction transaction(&database, durability);
  SPACE_TRY_VOID(database.Execute("BEGIN IMMEDIATE"), "begin transaction");
  return transaction;
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)), durability_(other.durability_) {}

Transaction::~Transaction() {
  if (database_ != nullptr) {
    [[maybe_unused]] const auto undone = database_->Execute("ROLLBACK");  // nothing better to do
    Restore();
  }
}

Result<void> Transaction::Commit() {
  SPACE_TRY_VOID(database_->Execute("COMMIT"), "commit");
  Restore();
  database_ = nullptr;
  return {};
}

void Transaction::Restore() {
  if (durability_ == Durability::kDurable) {
    [[maybe_unused]] const auto restored = database_->Execute("PRAGMA synchronous=NORMAL");
  }
}

}  // namespace space
