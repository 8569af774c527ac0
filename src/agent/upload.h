// POST /files (E2B.md 3.7).
#pragma once

#include "agent/settings.h"
#include "http/server.h"

namespace space::agent {

// Access has been checked. Streams: memory stays bounded whatever the size.
boost::asio::awaitable<void> ServeUpload(http::Exchange& exchange, const http::Target& target,
                                         const Settings& settings);

}  // namespace space::agent
