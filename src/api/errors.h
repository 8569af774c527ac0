// From our errors to HTTP: here and nowhere else.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space {

int HttpStatusOf(ErrorCode code);

// {"code":404,"message":"..."}: `code` equals the HTTP status, since the E2B clients decide by it.
std::string ErrorBody(int status, std::string_view message);

}  // namespace space
