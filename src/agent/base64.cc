#include "agent/base64.h"

#include <array>
#include <cstdint>

namespace space::agent {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// Two output characters for each 12 bits of input.
constexpr auto kPairs = [] {
  std::array<char, 2 * 4096> pairs{};
  for (size_t i = 0; i < 4096; ++i) {
    pairs[2 * i] = kAlphabet[i >> 6];
    pairs[2 * i + 1] = kAlphabet[i & 63];
  }
  return pairs;
}();

constexpr auto kValues = [] {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<int8_t>(i);
  }
  return values;
}();

uint32_t ByteAt(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

}  // namespace

void AppendBase64(std::string_view bytes, std::string& out) {
  const size_t before = out.size();
  out.resize(before + (bytes.size() + 2) / 3 * 4);
  char* to = out.data() + before;
  size_t at = 0;
  for (; at + 3 <= bytes.size(); at += 3, to += 4) {
    const uint32_t bits =
        ByteAt(bytes, at) << 16 | ByteAt(bytes, at + 1) << 8 | ByteAt(bytes, at + 2);
    const char* high = &kPairs[2 * (bits >> 12)];
    const char* low = &kPairs[2 * (bits & 0xfff)];
    to[0] = high[0];
    to[1] = high[1];
    to[2] = low[0];
    to[3] = low[1];
  }
  const size_t left = bytes.size() - at;
  if (left == 0) {
    return;
  }
  const uint32_t bits = ByteAt(bytes, at) << 16 | (left == 2 ? ByteAt(bytes, at + 1) << 8 : 0);
  to[0] = kAlphabet[bits >> 18];
  to[1] = kAlphabet[bits >> 12 & 63];
  to[2] = left == 2 ? kAlphabet[bits >> 6 & 63] : '=';
  to[3] = '=';
}

Result<std::string> DecodeBase64(std::string_view text) {
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string out;
  out.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  unsigned count = 0;
  for (const char c : text) {
    const int8_t value = kValues[static_cast<uint8_t>(c)];
    if (value < 0) {
      return Fail(ErrorCode::kInvalidArgument, "invalid base64 text");
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xff);
    }
  }
  return out;
}

}  // namespace space::agent
