// Heads as text. Fields that decide framing are written from `BodyLength` alone; what the caller
// put there under those names is left out, so a proxied head cannot contradict the body.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "http/message.h"

namespace space::http {

struct BodyLength {
  enum class Kind { kNone, kLength, kChunked, kUntilClose };
  Kind kind = Kind::kNone;
  uint64_t bytes = 0;
};
enum class ConnectionField { kLeaveOut, kClose, kAsGiven };

// kInvalidArgument when a method, target, name or value could break the head apart.
Result<std::string> WriteRequestHead(const RequestHead& head, BodyLength length);
Result<std::string> WriteResponseHead(const ResponseHead& head, BodyLength length,
                                      ConnectionField connection);

}  // namespace space::http
