// Messages of Connect's streaming protocol: one flag byte, a 4-byte big-endian length, the payload.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

// Largest payload taken from a client. Memory for it grows only with bytes that really arrived.
constexpr size_t kMaxMessageBytes = 16 << 20;

struct Envelope {
  static constexpr uint8_t kCompressed = 0x01;
  static constexpr uint8_t kEndOfStream = 0x02;
  static constexpr size_t kHeaderBytes = 5;

  uint8_t flags = 0;
  std::string payload;
};

void AppendEnvelope(uint8_t flags, std::string_view payload, std::string& out);

// Cuts a byte stream from a client into envelopes. A failed parser stays failed.
class EnvelopeParser {
 public:
  void Feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole envelope, nullopt when more bytes are needed.
  //   errors: kExhausted beyond kMaxMessageBytes, kUnimplemented for a compressed message,
  //           kInvalidArgument for unknown flags
  Result<std::optional<Envelope>> Next();
  // True when bytes of an unfinished envelope are left.
  bool is_partial() const { return !buffer_.empty(); }

 private:
  std::string buffer_;
};

}  // namespace space::agent
