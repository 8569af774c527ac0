// POST /files/compose: several files joined into one (E2B.md 3.5).
#pragma once

#include <boost/asio/thread_pool.hpp>

#include "agent/settings.h"
#include "http/server.h"

namespace space::agent {

// The sources are deleted once the destination is complete.
boost::asio::awaitable<void> ServeCompose(http::Exchange& exchange, boost::asio::thread_pool& pool,
                                          const Settings& settings);

}  // namespace space::agent
