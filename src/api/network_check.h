// The `network` part of a creation: what is kept, what is refused (E2B.md 2.4). Until sandboxes
// have a network, rules for traffic out are kept and shown; nothing gets out whatever they say.
#pragma once

#include <string>

#include "base/result.h"
#include "catalog/json.h"

namespace space {

struct NetworkOptions {
  bool is_public = true;  // allowPublicTraffic
  std::string kept;       // JSON; empty when the request had none
};

// `body`: the whole request.
//   errors: kInvalidArgument or kPermissionDenied naming the field
Result<NetworkOptions> ReadNetwork(const json::object& body);

// An ASCII host with an optional port; "${PORT}" may stand for the latter.
bool IsMaskHost(std::string_view text);

}  // namespace space
