#include "api/list_query.h"

#include <algorithm>
#include <charconv>

#include "node/sandbox_size.h"
#include "node/time_text.h"

namespace space {
namespace {

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr size_t kMaxCursor = 200;
constexpr std::string_view kAscending = "__asc";

std::string Base64UrlEncode(std::string_view bytes) {
  std::string out;
  uint32_t pool = 0;
  int bits = 0;
  for (const char byte : bytes) {
    pool = pool << 8 | static_cast<unsigned char>(byte);
    bits += 8;
    while (bits >= 6) {
      bits -= 6;
      out.push_back(kAlphabet[pool >> bits & 63]);
    }
  }
  if (bits > 0) {
    out.push_back(kAlphabet[pool << (6 - bits) & 63]);
  }
  return out;
}

Result<std::string> Base64UrlDecode(std::string_view text) {
  std::string out;
  uint32_t pool = 0;
  int bits = 0;
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  for (const char letter : text) {
    const size_t value = kAlphabet.find(letter);
    if (value == std::string_view::npos) {
      return Fail(ErrorCode::kInvalidArgument, "not base64url");
    }
    pool = pool << 6 | static_cast<uint32_t>(value);
    bits += 6;
    if (bits >= 8) {
      bits -= 8;
      out.push_back(static_cast<char>(pool >> bits & 255));
    }
  }
  return out;
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

tl::unexpected<Error> Bad(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, "validation error: " + message);
}

Result<void> ReadStates(const http::Target& target, const std::vector<SandboxState>& allowed,
                        SandboxQuery& query) {
  query.states = allowed;
  const auto text = target.Query("state");
  if (!text || text->empty()) {
    return {};
  }
  query.states.clear();
  for (const std::string_view name : Split(*text, ',')) {
    if (name == "paused") {
      continue;  // E2B's word for a state that no sandbox has yet
    }
    const auto state = ParseSandboxState(name);
    if (!state) {
      return Bad("state: unknown state " + std::string(name));
    }
    if (std::find(allowed.begin(), allowed.end(), *state) == allowed.end()) {
      return Bad("state: not listed here: " + std::string(name));
    }
    query.states.push_back(*state);
  }
  return {};
}

Result<void> ReadPaging(const http::Target& target, SandboxQuery& query) {
  if (const auto order = target.Query("order"); order && !order->empty()) {
    if (*order != "asc" && *order != "desc") {
      return Bad("order must be asc or desc");
    }
    query.ascending = *order == "asc";
  }
  if (const auto text = target.Query("limit"); text && !text->empty()) {
    const auto [end, error] =
        std::from_chars(text->data(), text->data() + text->size(), query.limit);
    if (error != std::errc() || end != text->data() + text->size() || query.limit < 1 ||
        query.limit > 100) {
      return Bad("limit must be from 1 to 100");
    }
  }
  if (const auto token = target.Query("nextToken"); token && !token->empty()) {
    SPACE_TRY(query.after, DecodeCursor(*token, query.ascending), "");
  }
  return {};
}

}  // namespace

Result<TextMap> DecodeMetadataFilter(std::string_view value) {
  TextMap map;
  SPACE_TRY(const std::string once, http::PercentDecode(value, true), "validation error: metadata");
  if (once.empty()) {
    return map;
  }
  for (const std::string_view pair : Split(once, '&')) {
    const std::vector<std::string_view> halves = Split(pair, '=');
    if (halves.size() != 2) {
      return Bad("metadata must be key=value pairs joined by &");
    }
    SPACE_TRY(std::string key, http::PercentDecode(halves[0], true), "validation error: metadata");
    SPACE_TRY(std::string text, http::PercentDecode(halves[1], true), "validation error: metadata");
    map[std::move(key)] = std::move(text);
  }
  return map;
}

Result<SandboxQuery> ParseListQuery(const http::Target& target,
                                    const std::vector<SandboxState>& allowed) {
  SandboxQuery query;
  SPACE_TRY_VOID(ReadStates(target, allowed, query), "");
  SPACE_TRY_VOID(ReadPaging(target, query), "");
  if (const auto metadata = target.Query("metadata")) {
    SPACE_TRY(query.metadata, DecodeMetadataFilter(*metadata), "");
  }
  if (const auto time = target.Query("startedAfter"); time && !time->empty()) {
    SPACE_TRY(query.started_after, ParseTime(*time), "validation error: startedAfter");
  }
  if (const auto name = target.Query("template"); name && !name->empty()) {
    SPACE_TRY(const TemplateReference reference, ParseTemplateReference(*name), "");
    if (!reference.tag.empty()) {
      return Bad("template: a tag is not allowed here");
    }
    query.template_id = reference.name;
  }
  return query;
}

std::string EncodeCursor(const SandboxRecord& last, bool ascending) {
  return Base64UrlEncode(FormatTime(last.started_at) + "__" + last.id +
                         std::string(ascending ? kAscending : ""));
}

Result<std::pair<Micros, std::string>> DecodeCursor(std::string_view cursor, bool ascending) {
  const auto decoded = Base64UrlDecode(cursor.substr(0, kMaxCursor));
  std::string_view text = decoded ? std::string_view(*decoded) : std::string_view();
  if (cursor.size() > kMaxCursor || text.ends_with(kAscending) != ascending) {
    return Bad("nextToken is not one of this listing");
  }
  if (ascending) {
    text.remove_suffix(kAscending.size());
  }
  const size_t middle = text.find("__");
  if (middle == std::string_view::npos || middle + 2 == text.size()) {
    return Bad("nextToken is not one of this listing");
  }
  const auto time = ParseTime(text.substr(0, middle));
  if (!time) {
    return Bad("nextToken is not one of this listing");
  }
  return std::pair(*time, std::string(text.substr(middle + 2)));
}

}  // namespace space
