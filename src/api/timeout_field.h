// The `timeout` of creates, forks, resumes and connects: seconds, from 1 to limits.max_timeout.
#pragma once

#include <cstdint>

#include "api/json_fields.h"
#include "base/result.h"
#include "node/config.h"

namespace space {

// `otherwise` when it is absent.
//   errors: kInvalidArgument naming timeout; checked before anything is looked up or done
Result<int64_t> ReadTimeout(const JsonFields& fields, int64_t otherwise, const Config& config);

// kInvalidArgument when it is longer than limits.max_timeout.
Result<void> CheckLongest(int64_t seconds, const Config& config);

}  // namespace space
