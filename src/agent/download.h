// GET and HEAD /files (E2B.md 3.6).
#pragma once

#include "agent/settings.h"
#include "http/server.h"

namespace space::agent {

// Access has been checked.
boost::asio::awaitable<void> ServeDownload(http::Exchange& exchange, const http::Target& target,
                                           const Settings& settings);

}  // namespace space::agent
