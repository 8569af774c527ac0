#include "api/timeout_field.h"

#include <string>

namespace space {

Result<void> CheckLongest(int64_t seconds, const Config& config) {
  if (seconds > config.max_timeout.count()) {
    return Fail(ErrorCode::kInvalidArgument, "Timeout cannot be greater than " +
                                                 std::to_string(config.max_timeout.count()) +
                                                 " seconds (limits.max_timeout)");
  }
  return {};
}

Result<int64_t> ReadTimeout(const JsonFields& fields, int64_t otherwise, const Config& config) {
  SPACE_TRY(const std::optional<int64_t> timeout, fields.Number("timeout"), "");
  const int64_t seconds = timeout.value_or(otherwise);
  if (seconds <= 0) {
    // The hosted service's words; `timeout` is the field.
    return Fail(ErrorCode::kInvalidArgument, "Timeout must be greater than 0");
  }
  SPACE_TRY_VOID(CheckLongest(seconds, config), "");
  return seconds;
}

}  // namespace space
