// JSON of clients and of the catalog: Boost.JSON behind a parser with limits. Any thread.
#pragma once

#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "base/result.h"
#include "catalog/records.h"

namespace space {

namespace json = boost::json;

// From a client: at most `kMaxJsonBytes` bytes and `kMaxJsonDepth` levels; kInvalidArgument else.
// Deeper nesting would cost stack in whoever walks the value.
constexpr size_t kMaxJsonBytes = 1024 * 1024;
constexpr size_t kMaxJsonDepth = 16;
Result<json::value> ParseJson(std::string_view text);

// {"a":"b"}; invalid UTF-8 cannot occur, since values came in through ParseJson.
std::string EncodeTextMap(const TextMap& map);
Result<TextMap> DecodeTextMap(std::string_view text);

}  // namespace space
