// Heads as they go through the proxy, and the answers it gives itself (E2B.md section 4). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/proxy_route.h"
#include "http/message.h"

namespace space {

// The request as the guest gets it: hop-by-hop fields gone, Host as it came or masked. An upgrade
// keeps its two fields.
http::RequestHead HeadForGuest(const http::RequestHead& head, const std::string& mask_host,
                               uint16_t port);
// The response as the client gets it. Guest bytes on a shared address are kept from becoming a page
// of that address.
http::ResponseHead HeadForClient(const http::ResponseHead& head, bool is_own_origin);

bool IsUpgrade(const http::RequestHead& head);
// The length of the body that comes; 0 when there is none, nullopt when it is chunked.
std::optional<uint64_t> BodyLengthOf(const http::Headers& headers);

struct ProxyAnswer {
  http::ResponseHead head;
  std::string body;
};
enum class ProxyProblem {
  kNotFound,
  kPortClosed,
  kTokenMissing,
  kTokenInvalid,
  kWakeDenied,
  kInternalPath
};
// JSON, or a small page for what looks like a person's browser.
ProxyAnswer AnswerProblem(ProxyProblem problem, const ProxyTarget& target,
                          const http::RequestHead& request);

}  // namespace space
