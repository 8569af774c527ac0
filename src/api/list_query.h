// The query of list operations: filters, paging, and E2B's threefold encoding of metadata.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/sandbox_store.h"
#include "http/message.h"

namespace space {

// The value of `metadata` after the usual decoding of the query: decoded once more, split at '&'
// and '=', and each half decoded again (E2B.md 2.5).
Result<TextMap> DecodeMetadataFilter(std::string_view value);

// `allowed`: the states that may be asked for; all of them when the query names none.
//   errors: kInvalidArgument naming the parameter
Result<SandboxQuery> ParseListQuery(const http::Target& target,
                                    const std::vector<SandboxState>& allowed);

// base64url of "<RFC 3339>__<id>", "__asc" behind it for ascending order.
std::string EncodeCursor(const SandboxRecord& last, bool ascending);
Result<std::pair<Micros, std::string>> DecodeCursor(std::string_view cursor, bool ascending);

}  // namespace space
