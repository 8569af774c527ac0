#include "cli/listener_owner.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "base/fd.h"

namespace space::cli {
namespace {

constexpr std::string_view kListening = "0A";
constexpr std::string_view kMapped = "0000000000000000FFFF0000";
constexpr std::string_view kLoopback6 = "00000000000000000000000001000000";

template <class T>
std::optional<T> Number(std::string_view text, int base) {
  T value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// Hexadecimal, each 32 bits in the host's order.
bool IsReachedByLoopback(std::string_view address) {
  if (address.size() == 32 && address.starts_with(kMapped)) {
    address.remove_prefix(kMapped.size());
  }
  const bool is_any = address.find_first_not_of('0') == std::string_view::npos;
  return is_any || address == kLoopback6 || (address.size() == 8 && address.ends_with("7F"));
}

// The first eight words of a line.
std::array<std::string_view, 8> WordsOf(std::string_view line) {
  std::array<std::string_view, 8> words;
  for (std::string_view& word : words) {
    const size_t begin = line.find_first_not_of(' ');
    line.remove_prefix(begin == std::string_view::npos ? line.size() : begin);
    word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
  }
  return words;
}

}  // namespace

std::optional<uid_t> ForeignListener(std::string_view table, uint16_t port, uid_t self) {
  while (!table.empty()) {
    const std::string_view line = table.substr(0, table.find('\n'));
    table.remove_prefix(std::min(line.size() + 1, table.size()));
    const auto words = WordsOf(line);
    const std::string_view local = words[1];
    const size_t colon = local.find(':');
    if (words[3] != kListening || colon == std::string_view::npos ||
        Number<uint16_t>(local.substr(colon + 1), 16) != port ||
        !IsReachedByLoopback(local.substr(0, colon))) {
      continue;
    }
    const auto user = Number<uid_t>(words[7], 10);
    if (user && *user != 0 && *user != self) {
      return user;
    }
  }
  return std::nullopt;
}

Result<void> CheckListener(uint16_t port) {
  for (const char* path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto table = ReadFile(path);  // without IPv6 there is no second one
    const auto user = table ? ForeignListener(*table, port, ::getuid()) : std::nullopt;
    if (user) {
      return Fail(ErrorCode::kPermissionDenied,
                  "the program that listens at port " + std::to_string(port) + " belongs to user " +
                      std::to_string(*user) +
                      ", not to you or root: it is not told your key. If it is what you mean, set "
                      "SPACE_API_URL");
    }
  }
  return {};
}

}  // namespace space::cli
