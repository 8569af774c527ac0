// Whether a request is for the API or for a port of a sandbox (E2B.md 1.6 and 4). Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "http/message.h"

namespace space {

struct ProxyTarget {
  std::string sandbox_id;
  uint16_t port = 0;
  // By a host name of its own, so guest bytes are in an origin of their own; else by headers on an
  // address that the API and other sandboxes share.
  bool is_by_host = false;
};

struct ProxyDecision {
  enum class Kind { kApi, kSandbox, kBad };
  Kind kind = Kind::kApi;
  ProxyTarget target;
  std::string error;  // kBad: for the client
};

// 1. Host `<port>-<id>[-<client>].<rest>`; 2. E2b-Sandbox-Id and E2b-Sandbox-Port; 3. the API.
ProxyDecision DecideRoute(const http::RequestHead& head);

// Paths of envd that only the host may use.
bool IsInternalPath(std::string_view raw_target);

}  // namespace space
