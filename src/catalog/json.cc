#include "catalog/json.h"

#include <boost/json/src.hpp>  // the library itself: here and nowhere else

namespace space {

Result<json::value> ParseJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return Fail(ErrorCode::kInvalidArgument, "JSON is larger than 1 MiB");
  }
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument, "not valid JSON: " + error.message());
  }
  return value;
}

std::string EncodeTextMap(const TextMap& map) {
  json::object object;
  for (const auto& [key, value] : map) {
    object[key] = value;
  }
  return json::serialize(object);
}

Result<TextMap> DecodeTextMap(std::string_view text) {
  SPACE_TRY(const json::value value, ParseJson(text), "read map");
  const json::object* object = value.if_object();
  if (object == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, "not a JSON object");
  }
  TextMap map;
  for (const auto& [key, entry] : *object) {
    const json::string* entry_text = entry.if_string();
    if (entry_text == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, "value is not a string", std::string(key));
    }
    map.emplace(std::string(key), std::string(*entry_text));
  }
  return map;
}

}  // namespace space
