// Messages as JSON (the SDKs) or binary protobuf (Go clients).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "base/result.h"

namespace space::agent {

enum class Codec { kJson, kProto };

struct ContentType {
  Codec codec;
  bool is_stream;
};
// application/json, application/proto, application/connect+json, application/connect+proto;
// parameters are ignored. nullopt for everything else.
std::optional<ContentType> ParseContentType(std::string_view text);
std::string_view ContentTypeName(ContentType type);

// JSON: unknown fields are ignored, both spellings of names are taken, nesting is limited to 100 by
// protobuf. Empty JSON counts as {}.
//   errors: kInvalidArgument with the position in the text
Result<void> Decode(Codec codec, std::string_view bytes, google::protobuf::Message& into);
std::string Encode(Codec codec, const google::protobuf::Message& message);

}  // namespace space::agent
