// The proxy to envd and to guest ports. What is forwarded was parsed and is written anew; bodies
// stream both ways; when the sandbox ends, open streams are cut, not ended. One io_context thread.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "api/proxy_route.h"
#include "http/server.h"
#include "node/node.h"

namespace space {

boost::asio::awaitable<void> ProxyRequest(Node& node, http::Exchange& exchange, ProxyTarget target);

}  // namespace space
