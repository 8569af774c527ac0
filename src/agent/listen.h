// Accepting connections of the host: vsock in a guest, a unix socket or TCP elsewhere. Agent's main
// thread only.
#pragma once

#include <functional>

#include <boost/asio/any_io_executor.hpp>

#include "base/fd.h"
#include "http/stream.h"

namespace space::agent {

namespace asio = boost::asio;

using OnConnection = std::function<void(http::Stream)>;

// Accepts for ever on a listening socket of any family. On vsock only CID 2, the host, is let in:
// the guest's own programs may connect to the same port by its loopback.
Result<void> AcceptFromHost(asio::any_io_executor executor, UniqueFd listener,
                            OnConnection on_connection);

}  // namespace space::agent
