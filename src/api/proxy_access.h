// Who may reach a port of a sandbox, and who may wake one that is paused (E2B.md 2.6, 4). Pure.
#pragma once

#include <optional>

#include "api/proxy_head.h"
#include "api/proxy_route.h"
#include "catalog/records.h"

namespace space {

// The token of private sandboxes; envd's port never needs it.
std::optional<ProxyProblem> CheckTrafficToken(const SandboxRecord& record,
                                              const ProxyTarget& target,
                                              const http::Headers& headers);

// A secured sandbox's envd is woken only by who could use it: by token, or by a signed file URL
// (E2B.md 1.7). The guest checks again.
bool MayWake(const SandboxRecord& record, const ProxyTarget& target,
             const http::RequestHead& request, Micros now);

// Whether this is a file request with a signature made with the token of this sandbox; expired ones
// too (the guest refuses those, in its words).
bool IsSignedFor(const SandboxRecord& record, const http::RequestHead& request);

}  // namespace space
