// Heads and short bodies that envd answers with: CORS and errors are the same everywhere.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "http/server.h"

namespace space::agent {

namespace asio = boost::asio;

// With CORS headers when the request came from a browser. `content_type` may be empty.
http::ResponseHead MakeHead(const http::Exchange& exchange, int status,
                            std::string_view content_type);
// {"code":<status>,"message":"..."}; errors of sending are the client's, so they are dropped.
asio::awaitable<void> RespondRestError(http::Exchange& exchange, int status,
                                       std::string_view message);
asio::awaitable<void> RespondJson(http::Exchange& exchange, std::string body);
asio::awaitable<void> RespondEmpty(http::Exchange& exchange, int status);
// Answers OPTIONS; needs no token (a browser sends none with a preflight).
asio::awaitable<void> RespondPreflight(http::Exchange& exchange);

// As http::StatusOf, but 507 when a disk is full.
int RestStatus(const Error& error);

}  // namespace space::agent
