// The queries of list operations: filters, paging, and E2B's threefold encoding of metadata.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/sandbox_store.h"
#include "catalog/snapshot_store.h"
#include "http/message.h"

namespace space {

// The value of `metadata` after the usual decoding of the query: decoded once more, split at '&'
// and '=', and each half decoded again (E2B.md 2.5).
Result<TextMap> DecodeMetadataFilter(std::string_view value);

// The words of `state` and what each stands for.
using StateWords = std::map<std::string, std::vector<SandboxState>, std::less<>>;
// E2B's: "running" and "paused", each with the moves that are shown so.
StateWords ShownStateWords();

// `limit` and `nextToken` of a listing that is newest first.
struct Paging {
  size_t limit = 100;
  std::optional<std::pair<Micros, std::string>> after;
};
Result<Paging> ParsePaging(const http::Target& target);

// `words` may be asked for; all of them are when the query names none.
//   errors: kInvalidArgument naming the parameter
Result<SandboxQuery> ParseListQuery(const http::Target& target, const StateWords& words);

// sandboxID, name (with or without namespace and tag), limit, nextToken.
//   errors: kInvalidArgument naming the parameter
Result<SnapshotQuery> ParseSnapshotQuery(const http::Target& target);

// base64url of "<RFC 3339>__<id>", "__asc" behind it for ascending order.
std::string EncodeCursor(Micros time, std::string_view id, bool ascending);
Result<std::pair<Micros, std::string>> DecodeCursor(std::string_view cursor, bool ascending);

}  // namespace space
