// The client's half of Connect over JSON (E2B.md 3.2): envelopes and base64. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::cli {

constexpr uint8_t kEndOfStream = 0x02;
// The agent's output chunks are 32 KiB; a hostile guest must not make us hold more than this.
constexpr size_t kMaxEnvelopeBytes = 4 << 20;

std::string MakeEnvelope(std::string_view payload);

struct Envelope {
  uint8_t flags = 0;
  std::string payload;
};

// Cuts bytes as they come into envelopes.
class EnvelopeReader {
 public:
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // nullopt: more bytes are needed. kInvalidArgument for one that is compressed or too large.
  Result<std::optional<Envelope>> Next();

 private:
  std::string buffer_;
  size_t used_ = 0;
};

std::string EncodeBase64(std::string_view bytes);
Result<std::string> DecodeBase64(std::string_view text);

// Connect's name of an error to ours; unknown names are kInternal.
ErrorCode CodeOfConnectName(std::string_view name);
ErrorCode CodeOfStatus(int http_status);

}  // namespace space::cli
