// One type for every byte stream that HTTP runs over: TCP, unix socket, vsock, socket pair.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/any_io_executor.hpp>

#include "base/fd.h"

namespace space::http {

namespace asio = boost::asio;
using Stream = asio::generic::stream_protocol::socket;

// Takes over a connected stream socket.
Result<Stream> AdoptStream(asio::any_io_executor executor, UniqueFd fd);
// Deadlines in milliseconds; Nagle off on TCP.
asio::awaitable<Result<Stream>> ConnectTcp(std::string host, uint16_t port, int limit_ms);
asio::awaitable<Result<Stream>> ConnectUnix(std::string path, int limit_ms);

// Copies both ways until both sides have ended; half-close is passed on. Bounded buffers.
asio::awaitable<void> Splice(Stream& a, Stream& b);

}  // namespace space::http
