#include "base/result.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace space {
namespace {

ErrorCode CodeOfErrno(int number) {
  switch (number) {
    case ENOENT:
    case ESRCH:
      return ErrorCode::kNotFound;
    case EEXIST:
    case EBUSY:
    case EADDRINUSE:
      return ErrorCode::kConflict;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kExhausted;
    case EACCES:
    case EPERM:
      return ErrorCode::kPermissionDenied;
    case ETIMEDOUT:
      return ErrorCode::kTimeout;
    case EINVAL:
      return ErrorCode::kInvalidArgument;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kIo;
  }
}

}  // namespace

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kConflict:
      return "conflict";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kGuestFault:
      return "guest_fault";
    case ErrorCode::kUnimplemented:
      return "unimplemented";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kOverQuota:
      return "over_quota";
  }
  return "internal";
}

Error Error::While(std::string_view doing) && {
  if (!doing.empty()) {
    message_.insert(0, ": ").insert(0, doing);
  }
  return std::move(*this);
}

Error Error::WithErrno(int number) && {
  errno_ = number;
  return std::move(*this);
}

tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::make_unexpected(Error(code, std::move(message)));
}

tl::unexpected<Error> Fail(ErrorCode code, std::string_view message, std::string_view object) {
  std::string text(message);
  text.append(": ").append(object);
  return Fail(code, std::move(text));
}

tl::unexpected<Error> Fail(Error error) { return tl::make_unexpected(std::move(error)); }

tl::unexpected<Error> FailErrno(std::string_view doing) { return FailErrno(doing, {}); }

tl::unexpected<Error> FailErrno(std::string_view doing, std::string_view object) {
  const int number = errno;
  std::string text(doing);
  if (!object.empty()) {
    text.append(" ").append(object);
  }
  text.append(": ").append(std::generic_category().message(number));
  return Fail(Error(CodeOfErrno(number), std::move(text)).WithErrno(number));
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, expression);
  std::abort();
}

}  // namespace space
