// Reading of request headers that choose a part or an encoding of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace space::agent {

// Bytes [first, first + count) of a file.
struct ByteRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
// One range of "bytes=..." (RFC 9110, 14.1.2). nullopt for what is to be ignored: other units,
// several ranges, bad syntax. kInvalidArgument when no byte of it exists (416).
Result<std::optional<ByteRange>> ParseRange(std::string_view text, uint64_t size_bytes);

enum class Coding { kIdentity, kGzip, kNone };
// What Accept-Encoding leaves. gzip only when it is the one coding that was asked for: HTTP
// libraries offer "gzip, deflate" by themselves, and compressing costs more than a local connection
// gains.
Coding ChooseCoding(std::optional<std::string_view> accept_encoding);

}  // namespace space::agent
