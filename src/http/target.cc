#include <utility>

#include "http/message.h"

namespace space::http {
namespace {

int HexValue(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

bool IsUnreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

Result<Header> ParsePair(std::string_view pair) {
  const size_t equals = pair.find('=');
  SPACE_TRY(std::string name, PercentDecode(pair.substr(0, equals), true), "read query");
  if (equals == std::string_view::npos) {
    return Header{std::move(name), ""};
  }
  SPACE_TRY(std::string value, PercentDecode(pair.substr(equals + 1), true), "read query");
  return Header{std::move(name), std::move(value)};
}

}  // namespace

Result<std::string> PercentDecode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? HexValue(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? HexValue(text[i + 2]) : -1;
      if (high < 0 || low < 0) {
        return Fail(ErrorCode::kInvalidArgument, "broken percent escape in the address");
      }
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    if (c == '\0') {
      return Fail(ErrorCode::kInvalidArgument, "NUL in the address");
    }
    out += c;
  }
  return out;
}

std::string PercentEncode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (IsUnreserved(c)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

Result<Target> ParseTarget(std::string_view raw) {
  if (!raw.starts_with('/')) {
    return Fail(ErrorCode::kInvalidArgument, "the request target is not a path");
  }
  Target target;
  const size_t question = raw.find('?');
  target.path = std::string(raw.substr(0, question));
  std::string_view path = std::string_view(target.path).substr(1);
  while (!path.empty()) {
    const size_t slash = path.find('/');
    SPACE_TRY(std::string segment, PercentDecode(path.substr(0, slash), false), "read path");
    target.segments.push_back(std::move(segment));
    if (slash == std::string_view::npos) {
      break;
    }
    path.remove_prefix(slash + 1);
    if (path.empty()) {
      target.segments.emplace_back();  // "/a/" is not "/a"
    }
  }
  if (question == std::string_view::npos) {
    return target;
  }
  std::string_view query = raw.substr(question + 1);
  while (!query.empty()) {
    const size_t ampersand = query.find('&');
    const std::string_view pair = query.substr(0, ampersand);
    if (!pair.empty()) {
      SPACE_TRY(Header parsed, ParsePair(pair), "read address");
      target.query.push_back(std::move(parsed));
    }
    query.remove_prefix(ampersand == std::string_view::npos ? query.size() : ampersand + 1);
  }
  return target;
}

std::optional<std::string_view> Target::Query(std::string_view name) const {
  for (const Header& pair : query) {
    if (pair.name == name) {
      return pair.value;
    }
  }
  return std::nullopt;
}

}  // namespace space::http
