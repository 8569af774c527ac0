#include "agent/envelope.h"

namespace space::agent {

void AppendEnvelope(uint8_t flags, std::string_view payload, std::string& out) {
  const auto length = static_cast<uint32_t>(payload.size());
  out += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(length >> shift & 0xff);
  }
  out += payload;
}

Result<std::optional<Envelope>> EnvelopeParser::Next() {
  if (buffer_.size() < Envelope::kHeaderBytes) {
    return std::nullopt;
  }
  const auto flags = static_cast<uint8_t>(buffer_[0]);
  uint32_t length = 0;
  for (size_t i = 1; i < Envelope::kHeaderBytes; ++i) {
    length = length << 8 | static_cast<uint8_t>(buffer_[i]);
  }
  if ((flags & Envelope::kCompressed) != 0) {
    return Fail(ErrorCode::kUnimplemented, "compressed messages are not supported");
  }
  if ((flags & ~Envelope::kEndOfStream) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "unknown flags in a message envelope");
  }
  if (length > kMaxMessageBytes) {
    return Fail(ErrorCode::kExhausted, "message of " + std::to_string(length) +
                                           " bytes is larger than the limit of " +
                                           std::to_string(kMaxMessageBytes));
  }
  if (buffer_.size() - Envelope::kHeaderBytes < length) {
    return std::nullopt;
  }
  Envelope envelope{.flags = flags, .payload = buffer_.substr(Envelope::kHeaderBytes, length)};
  buffer_.erase(0, Envelope::kHeaderBytes + length);
  return envelope;
}

}  // namespace space::agent
