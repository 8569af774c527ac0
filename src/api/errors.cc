#include "api/errors.h"

#include "catalog/json.h"
#include "http/status.h"

namespace space {

int HttpStatusOf(ErrorCode code) {
  // E2B clients say "service busy, try again" to a 503.
  return code == ErrorCode::kExhausted ? 503 : http::StatusOf(code);
}

std::string ErrorBody(int status, std::string_view message) {
  json::object body;
  body["code"] = status;
  body["message"] = message;
  return json::serialize(body);
}

}  // namespace space
