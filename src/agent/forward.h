// Connections of the host to TCP ports inside the guest (wire/ports.h, kForwardPort).
#pragma once

#include <boost/asio/awaitable.hpp>

#include "http/stream.h"

namespace space::agent {

// Reads the port, connects, answers one byte, then copies both ways until both have ended.
boost::asio::awaitable<void> Forward(http::Stream host);

}  // namespace space::agent
