#include "agent/accept.h"

#include <algorithm>
#include <charconv>

#include "http/message.h"

namespace space::agent {
namespace {

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::optional<uint64_t> Number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

// "gzip;q=0" is refused, everything else is accepted.
bool IsRefused(std::string_view item) {
  const size_t q = item.find("q=");
  if (q == std::string_view::npos) {
    return false;
  }
  const std::string_view weight = Trim(item.substr(q + 2));
  return weight.find_first_not_of("0.") == std::string_view::npos;
}

}  // namespace

Result<std::optional<ByteRange>> ParseRange(std::string_view text, uint64_t size_bytes) {
  constexpr std::string_view kUnit = "bytes=";
  const size_t dash = text.find('-');
  if (!text.starts_with(kUnit) || dash == std::string_view::npos ||
      text.find(',') != std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view first_text = Trim(text.substr(kUnit.size(), dash - kUnit.size()));
  const std::string_view last_text = Trim(text.substr(dash + 1));
  const auto first = Number(first_text);
  const auto last = Number(last_text);
  if ((!first && !first_text.empty()) || (!last && !last_text.empty()) || (!first && !last) ||
      (first && last && *last < *first)) {
    return std::nullopt;
  }
  const auto unsatisfiable = [] {
    return Fail(ErrorCode::kInvalidArgument, "range lies outside of the file");
  };
  if (!first) {  // the last n bytes
    const uint64_t count = std::min(*last, size_bytes);
    if (count == 0) {
      return unsatisfiable();
    }
    return ByteRange{.first = size_bytes - count, .count = count};
  }
  if (*first >= size_bytes) {
    return unsatisfiable();
  }
  const uint64_t end = last && *last < size_bytes ? *last + 1 : size_bytes;
  return ByteRange{.first = *first, .count = end - *first};
}

Coding ChooseCoding(std::optional<std::string_view> accept_encoding) {
  if (!accept_encoding) {
    return Coding::kIdentity;
  }
  bool gzip = false;
  bool others = false;
  bool any_refused = false;
  std::optional<bool> identity;
  std::string_view rest = *accept_encoding;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view item = Trim(rest.substr(0, comma));
    rest.remove_prefix(comma == std::string_view::npos ? rest.size() : comma + 1);
    const std::string_view name = Trim(item.substr(0, item.find(';')));
    const bool is_refused = IsRefused(item);
    if (http::EqualsIgnoringCase(name, "identity")) {
      identity = !is_refused;
    } else if (http::EqualsIgnoringCase(name, "gzip") || http::EqualsIgnoringCase(name, "x-gzip")) {
      gzip = gzip || !is_refused;
    } else if (name == "*") {
      any_refused = any_refused || is_refused;
      others = others || !is_refused;
    } else if (!name.empty()) {
      others = others || !is_refused;
    }
  }
  const bool identity_allowed = identity.value_or(!any_refused);
  if (gzip && (!identity_allowed || (!others && !identity))) {
    return Coding::kGzip;
  }
  return identity_allowed ? Coding::kIdentity : Coding::kNone;
}

}  // namespace space::agent
