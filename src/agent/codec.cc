#include "agent/codec.h"

#include <google/protobuf/util/json_util.h>

#include "http/message.h"

namespace space::agent {

std::optional<ContentType> ParseContentType(std::string_view text) {
  text = text.substr(0, text.find(';'));
  while (text.ends_with(' ')) {
    text.remove_suffix(1);
  }
  for (const Codec codec : {Codec::kJson, Codec::kProto}) {
    for (const bool is_stream : {false, true}) {
      const ContentType type{.codec = codec, .is_stream = is_stream};
      if (http::EqualsIgnoringCase(text, ContentTypeName(type))) {
        return type;
      }
    }
  }
  return std::nullopt;
}

std::string_view ContentTypeName(ContentType type) {
  if (type.codec == Codec::kJson) {
    return type.is_stream ? "application/connect+json" : "application/json";
  }
  return type.is_stream ? "application/connect+proto" : "application/proto";
}

Result<void> Decode(Codec codec, std::string_view bytes, google::protobuf::Message& into) {
  if (codec == Codec::kProto) {
    if (!into.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return Fail(ErrorCode::kInvalidArgument, "request is not a valid protobuf message");
    }
    return {};
  }
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const std::string_view text = bytes.empty() ? "{}" : bytes;
  const auto status =
      google::protobuf::util::JsonStringToMessage({text.data(), text.size()}, &into, options);
  if (!status.ok()) {
    return Fail(ErrorCode::kInvalidArgument,
                "request is not valid JSON: " + status.message().ToString());
  }
  return {};
}

std::string Encode(Codec codec, const google::protobuf::Message& message) {
  if (codec == Codec::kProto) {
    return message.SerializeAsString();
  }
  std::string text;
  // Fails for a timestamp outside the years 1 to 9999, which FillEntry never makes.
  const auto status = google::protobuf::util::MessageToJsonString(message, &text);
  return status.ok() ? text : "{}";
}

}  // namespace space::agent
