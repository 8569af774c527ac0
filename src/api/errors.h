// From our errors to answers of the API.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space {

// As http::StatusOf, but for what the E2B clients take differently.
int HttpStatusOf(ErrorCode code);

// {"code":404,"message":"..."}: `code` equals the HTTP status, since the E2B clients decide by it.
std::string ErrorBody(int status, std::string_view message);

}  // namespace space
