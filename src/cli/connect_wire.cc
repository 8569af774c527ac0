#include "cli/connect_wire.h"

#include <array>
#include <utility>

namespace space::cli {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> MakeReverse() {
  std::array<int8_t, 256> reverse = {};
  for (int8_t& entry : reverse) {
    entry = -1;
  }
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    reverse[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return reverse;
}
constexpr std::array<int8_t, 256> kReverse = MakeReverse();

}  // namespace

std::string MakeEnvelope(std::string_view payload) {
  const auto size = static_cast<uint32_t>(payload.size());
  std::string out(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>((size >> shift) & 0xff);
  }
  return out.append(payload);
}

Result<std::optional<Envelope>> EnvelopeReader::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (rest.size() < kHeaderBytes) {
    return std::optional<Envelope>();
  }
  uint32_t size = 0;
  for (size_t i = 1; i < kHeaderBytes; ++i) {
    size = size << 8 | static_cast<unsigned char>(rest[i]);
  }
  Envelope envelope;
  envelope.flags = static_cast<uint8_t>(rest[0]);
  if ((envelope.flags & ~kEndOfStream) != 0 || size > kMaxEnvelopeBytes) {
    return Fail(ErrorCode::kInvalidArgument, "answer is not a stream of Connect messages");
  }
  if (rest.size() < kHeaderBytes + size) {
    return std::optional<Envelope>();
  }
  envelope.payload = rest.substr(kHeaderBytes, size);
  used_ += kHeaderBytes + size;
  if (used_ == buffer_.size() || used_ > kMaxEnvelopeBytes) {
    buffer_.erase(0, used_);
    used_ = 0;
  }
  return std::optional<Envelope>(std::move(envelope));
}

std::string EncodeBase64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= count ? kAlphabet[(group >> (18 - 6 * j)) & 63] : '=';
    }
  }
  return out;
}

Result<std::string> DecodeBase64(std::string_view text) {
  while (!text.empty() && text.back() == '=') {
    text.remove_suffix(1);
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t group = 0;
  int bits = 0;
  for (const char c : text) {
    const int8_t value = kReverse[static_cast<unsigned char>(c)];
    if (value < 0) {
      return Fail(ErrorCode::kInvalidArgument, "output of the command is not base64");
    }
    group = group << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out += static_cast<char>((group >> bits) & 0xff);
    }
  }
  return out;
}

ErrorCode CodeOfConnectName(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, ErrorCode>, 13> kNames = {{
      {"invalid_argument", ErrorCode::kInvalidArgument},
      {"failed_precondition", ErrorCode::kInvalidArgument},
      {"out_of_range", ErrorCode::kInvalidArgument},
      {"not_found", ErrorCode::kNotFound},
      {"already_exists", ErrorCode::kConflict},
      {"aborted", ErrorCode::kConflict},
      {"permission_denied", ErrorCode::kPermissionDenied},
      {"unauthenticated", ErrorCode::kUnauthenticated},
      {"resource_exhausted", ErrorCode::kExhausted},
      {"unavailable", ErrorCode::kUnavailable},
      {"deadline_exceeded", ErrorCode::kTimeout},
      {"canceled", ErrorCode::kTimeout},
      {"unimplemented", ErrorCode::kUnimplemented},
  }};
  for (const auto& [known, code] : kNames) {
    if (known == name) {
      return code;
    }
  }
  return ErrorCode::kInternal;
}

ErrorCode CodeOfStatus(int http_status) {
  switch (http_status) {
    case 400:
      return ErrorCode::kInvalidArgument;
    case 401:
      return ErrorCode::kUnauthenticated;
    case 403:
      return ErrorCode::kPermissionDenied;
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return ErrorCode::kConflict;
    case 429:
    case 507:
      return ErrorCode::kExhausted;
    case 501:
      return ErrorCode::kUnimplemented;
    case 502:
    case 503:
      return ErrorCode::kUnavailable;
    case 504:
      return ErrorCode::kTimeout;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace space::cli
