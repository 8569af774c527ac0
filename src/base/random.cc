#include "base/random.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/result.h"

namespace space {

void FillRandom(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::getrandom(into.data(), into.size(), 0);
    SPACE_CHECK(got > 0 || errno == EINTR);
    if (got > 0) {
      into = into.subspan(static_cast<size_t>(got));
    }
  }
}

std::string RandomLowerAlnum(size_t length) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string text;
  while (text.size() < length) {
    std::array<std::byte, 64> bytes;
    FillRandom(bytes);
    for (const std::byte byte : bytes) {
      const auto value = static_cast<unsigned>(byte);
      // 252 = 7 * 36: larger values would favour the first letters.
      if (value < 252 && text.size() < length) {
        text.push_back(kAlphabet[value % kAlphabet.size()]);
      }
    }
  }
  return text;
}

std::string RandomHex(size_t bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::vector<std::byte> raw(bytes);
  FillRandom(raw);
  std::string text;
  for (const std::byte byte : raw) {
    text.push_back(kDigits[static_cast<unsigned>(byte) >> 4]);
    text.push_back(kDigits[static_cast<unsigned>(byte) & 15]);
  }
  return text;
}

std::string RandomUuid() {
  std::string hex = RandomHex(16);
  hex[12] = '4';  // version 4, variant 1 (RFC 4122, 4.4)
  hex[16] = "89ab"[static_cast<unsigned>(hex[16]) & 3];
  return hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" +
         hex.substr(16, 4) + "-" + hex.substr(20);
}

}  // namespace space
