#include "api/list_query.h"

#include <algorithm>
#include <charconv>

#include "api/router.h"
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

Result<void> ReadStates(const http::Target& target, const StateWords& words, SandboxQuery& query) {
  const auto text = target.Query("state");
  if (!text || text->empty()) {
    for (const auto& [word, states] : words) {
      query.states.insert(query.states.end(), states.begin(), states.end());
    }
    return {};
  }
  for (const std::string_view name : Split(*text, ',')) {
    const auto found = words.find(name);
    if (found == words.end()) {
      return Bad("state: unknown state " + std::string(name));
    }
    query.states.insert(query.states.end(), found->second.begin(), found->second.end());
  }
  return {};
}

Result<void> ReadPaging(const http::Target& target, bool ascending, size_t& limit,
                        std::optional<std::pair<Micros, std::string>>& after) {
  if (const auto text = target.Query("limit"); text && !text->empty()) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (error != std::errc() || end != text->data() + text->size() || limit < 1 || limit > 100) {
      return Bad("limit must be from 1 to 100");
    }
  }
  if (const auto token = target.Query("nextToken"); token && !token->empty()) {
    SPACE_TRY(after, DecodeCursor(*token, ascending), "");
  }
  return {};
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32)
                                          : static_cast<char>(letter);
  });
  return lower;
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

StateWords ShownStateWords() {
  StateWords words;
  for (const ShownState shown : {ShownState::kRunning, ShownState::kPaused}) {
    words[std::string(ShownStateName(shown))] = StatesShownAs(shown);
  }
  return words;
}

Result<Paging> ParsePaging(const http::Target& target) {
  Paging paging;
  SPACE_TRY_VOID(ReadPaging(target, false, paging.limit, paging.after), "");
  return paging;
}

Result<SnapshotQuery> ParseSnapshotQuery(const http::Target& target) {
  SnapshotQuery query;
  SPACE_TRY_VOID(ReadPaging(target, false, query.limit, query.after), "");
  if (const auto id = target.Query("sandboxID"); id && !id->empty()) {
    SPACE_TRY(query.source_id, SandboxIdOf(*id), "");
  }
  if (const auto text = target.Query("name"); text && !text->empty()) {
    std::string name = LowerCase(*text);
    if (const size_t colon = name.find(':'); colon != std::string::npos) {
      query.tag = name.substr(colon + 1);
      name.resize(colon);
    }
    if (const size_t slash = name.find('/'); slash != std::string::npos) {
      query.name_space = name.substr(0, slash);
      name.erase(0, slash + 1);
    }
    if (name.empty() || query.tag == "" || query.name_space == "") {
      return Bad("name must be NAME, NAME:TAG or NAMESPACE/NAME:TAG");
    }
    query.name = std::move(name);
  }
  return query;
}

Result<SandboxQuery> ParseListQuery(const http::Target& target, const StateWords& words) {
  SandboxQuery query;
  SPACE_TRY_VOID(ReadStates(target, words, query), "");
  if (const auto order = target.Query("order"); order && !order->empty()) {
    if (*order != "asc" && *order != "desc") {
      return Bad("order must be asc or desc");
    }
    query.ascending = *order == "asc";
  }
  SPACE_TRY_VOID(ReadPaging(target, query.ascending, query.limit, query.after), "");
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

std::string EncodeCursor(Micros time, std::string_view id, bool ascending) {
  return Base64UrlEncode(FormatTime(time) + "__" + std::string(id) +
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
