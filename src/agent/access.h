// Who may call and as which guest user (E2B.md 3.1, 1.7, 3.6).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "agent/settings.h"
#include "agent/users.h"
#include "http/message.h"

namespace space::agent {

bool EqualsInConstantTime(std::string_view a, std::string_view b);

// True when no token is set or X-Access-Token equals it.
bool HasValidToken(const http::RequestHead& request, const Settings& settings);

// "v1_" and base64 of SHA-256 over path:operation:user:token[:expiration], without '='.
std::string FileSignature(std::string_view path, std::string_view operation, std::string_view user,
                          std::string_view token, std::optional<std::string_view> expiration);

// Token or signature, for /files. `operation` is "read" or "write".
//   errors: kUnauthenticated with envd's exact messages
Result<void> CheckFileAccess(const http::RequestHead& request, const http::Target& target,
                             std::string_view operation, const Settings& settings,
                             int64_t now_seconds);

// The user of the Basic Authorization header (its password is ignored), else `from_query`, else the
// default user.
//   errors: kUnauthenticated, invalid username: 'x'
Result<User> SelectUser(const http::RequestHead& request,
                        std::optional<std::string_view> from_query, const Settings& settings);

}  // namespace space::agent
