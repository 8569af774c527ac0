#include "api/errors.h"

#include "catalog/json.h"

namespace space {

int HttpStatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kUnauthenticated:
      return 401;
    case ErrorCode::kPermissionDenied:
      return 403;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kConflict:
      return 409;
    case ErrorCode::kUnimplemented:
      return 501;
    case ErrorCode::kExhausted:  // E2B clients say "service busy, try again" to a 503
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kTimeout:
      return 504;
    case ErrorCode::kGuestFault:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

std::string ErrorBody(int status, std::string_view message) {
  json::object body;
  body["code"] = status;
  body["message"] = message;
  return json::serialize(body);
}

}  // namespace space
