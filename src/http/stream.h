// One type for every byte stream that HTTP runs over: TCP, unix socket, vsock, socket pair.
#pragma once

#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include "base/fd.h"

namespace space::http {

namespace asio = boost::asio;
using Stream = asio::generic::stream_protocol::socket;

// Takes over a connected stream socket. Nagle off and keep-alive probes on for TCP.
Result<Stream> AdoptStream(asio::any_io_executor executor, UniqueFd fd);
// Deadlines in milliseconds. kUnavailable when nobody listens, kTimeout. `host` is a literal
// address or "localhost": no resolver, so that static programs can use it.
asio::awaitable<Result<Stream>> ConnectTcp(std::string host, uint16_t port, int limit_ms);
asio::awaitable<Result<Stream>> ConnectUnix(std::string path, int limit_ms);

// Ends the connection so that the other side sees an error: a reset on TCP, elsewhere a plain
// close.
void CutStream(Stream& stream);

// Copies both ways until both sides have ended; half-close is passed on, and so is a reset. Bounded
// buffers. Both are closed on return.
asio::awaitable<void> Splice(Stream& a, Stream& b);

}  // namespace space::http
