// Base64 with the standard alphabet (RFC 4648, 4).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

// Appends the encoding with padding. Made for output streams: no allocation besides `out`.
void AppendBase64(std::string_view bytes, std::string& out);
// Padding may be absent. kInvalidArgument for any other character.
Result<std::string> DecodeBase64(std::string_view text);

}  // namespace space::agent
