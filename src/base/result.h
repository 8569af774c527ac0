// Errors as values. Every operation of ours that can fail returns Result<T>; see STYLE in
// ARCHITECTURE.md. Nothing of ours throws.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace space {

// Closed list, mapped once to HTTP (src/http) and once to Connect codes (src/agent).
enum class ErrorCode {
  kInvalidArgument,
  kUnauthenticated,
  kPermissionDenied,
  kNotFound,
  kConflict,
  kExhausted,    // a limit of ours or of the host is reached; may work later
  kUnavailable,  // the other side is gone or not there yet
  kTimeout,
  kGuestFault,  // the guest broke a rule of a device; never the host's fault
  kUnimplemented,
  kIo,
  kInternal,
  kOverQuota,  // a limit of the asker's own; others are not affected
};

std::string_view ErrorCodeName(ErrorCode code);

// What failed. Text starts lower case, has no full stop and names the object.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  // errno of the failed call, 0 when there was none.
  int system_errno() const { return errno_; }
  // The trail: outermost step first, then what failed.
  const std::string& message() const { return message_; }

  // The same error seen from one step further out: "start sandbox: open kernel: ...". An empty step
  // adds nothing: for functions whose errors go to a client word for word.
  Error While(std::string_view doing) &&;
  Error WithErrno(int number) &&;

 private:
  ErrorCode code_;
  int errno_ = 0;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Error>;

// A failed result of any type. `object` is what it concerns (a path, a field), put after the text.
tl::unexpected<Error> Fail(ErrorCode code, std::string message);
tl::unexpected<Error> Fail(ErrorCode code, std::string_view message, std::string_view object);
tl::unexpected<Error> Fail(Error error);
// From errno, which is read first: call right after the failed call. Codes: ENOENT -> kNotFound,
// EEXIST, EBUSY, EADDRINUSE -> kConflict, ENOSPC, ENOMEM, EMFILE, ENFILE -> kExhausted,
// EACCES, EPERM -> kPermissionDenied, ETIMEDOUT -> kTimeout, EINVAL -> kInvalidArgument, else kIo.
tl::unexpected<Error> FailErrno(std::string_view doing);
tl::unexpected<Error> FailErrno(std::string_view doing, std::string_view object);

// For a broken invariant of ours only; never on bytes from guest, client, disk or network.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace space

#define SPACE_CAT_INNER(a, b) a##b
#define SPACE_CAT(a, b) SPACE_CAT_INNER(a, b)

// SPACE_TRY(auto x, F(), "do f"): x, or return the error with the step before it.
#define SPACE_TRY_WITH(leave, step, lhs, expr, doing)                               \
  auto step = (expr);                                                               \
  if (!step.has_value()) leave ::space::Fail(std::move(step).error().While(doing)); \
  lhs = *std::move(step)
#define SPACE_TRY(lhs, expr, doing) \
  SPACE_TRY_WITH(return, SPACE_CAT(step_, __COUNTER__), lhs, expr, doing)
#define SPACE_CO_TRY(lhs, expr, doing) \
  SPACE_TRY_WITH(co_return, SPACE_CAT(step_, __COUNTER__), lhs, expr, doing)

#define SPACE_TRY_VOID_WITH(leave, expr, doing)                         \
  do {                                                                  \
    auto step_result = (expr);                                          \
    if (!step_result.has_value()) {                                     \
      leave ::space::Fail(std::move(step_result).error().While(doing)); \
    }                                                                   \
  } while (false)
#define SPACE_TRY_VOID(expr, doing) SPACE_TRY_VOID_WITH(return, expr, doing)
#define SPACE_CO_TRY_VOID(expr, doing) SPACE_TRY_VOID_WITH(co_return, expr, doing)

#define SPACE_CHECK(expression) \
  (static_cast<bool>(expression) ? void(0) : ::space::CheckFailed(__FILE__, __LINE__, #expression))
