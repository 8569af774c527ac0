// HTTP/1.1 server over any Stream. Beast parses and serialises inside; every request head has first
// passed CheckHead. One io_context thread; handlers are coroutines on it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "http/message.h"
#include "http/stream.h"

namespace space::http {

struct ServerLimits {
  size_t head_bytes = 64 * 1024;
  int head_timeout_ms = 30'000;   // from the first byte of a head to its end
  int idle_timeout_ms = 640'000;  // between requests; E2B clients keep connections 300 s
  // A Read or Write that waits this long without a byte moving either way cuts the connection.
  int stall_timeout_ms = 3'600'000;
  // One more takes the place of the one that has waited longest for a request; when none waits for
  // one, it stays in the listen queue.
  size_t connections = 4096;
};

// One request and its response. Lives for the handler's call; the handler owns the pace.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const RequestHead& request() const = 0;
  // Text of the peer's address, for logs.
  virtual const std::string& peer() const = 0;

  // Body bytes as they come, chunked or not; 0 at its end. `100-continue` is answered on first use.
  virtual asio::awaitable<Result<size_t>> Read(std::span<char> into) = 0;
  // The whole body; kExhausted beyond `limit` bytes.
  virtual asio::awaitable<Result<std::string>> ReadAll(size_t limit) = 0;

  // A whole response. Content-Length is set here.
  virtual asio::awaitable<Result<void>> Respond(ResponseHead head, std::string body) = 0;
  // A streamed response: chunked without a length, else exactly that many bytes. Every Write is on
  // the wire (or in the socket) when it returns; it waits while the client is slow. Writers may
  // overlap: each Write goes out whole. Bytes that a response to HEAD must not have are dropped.
  // Content-Length, Transfer-Encoding and Connection in `head` are replaced by our own, except that
  // "Connection: close" is honoured.
  virtual asio::awaitable<Result<void>> Start(ResponseHead head,
                                              std::optional<uint64_t> content_length) = 0;
  virtual asio::awaitable<Result<void>> Write(std::string_view bytes) = 0;
  virtual asio::awaitable<Result<void>> Finish() = 0;
  virtual bool started() const = 0;

  // Resets the connection: the client sees an error, not an end. Pending Reads and Writes fail.
  virtual void Cut() = 0;
  // Returns when the client has closed (or shut down its sending side), or after the handler's end.
  // For handlers that otherwise only write now and then; may be spawned beside the handler.
  virtual asio::awaitable<void> WaitForPeerClose() = 0;
  // For CONNECT-like use (WebSocket through the proxy): sends `head` as is (101) and hands over the
  // raw stream with bytes that were already read past the request. The stream is the caller's: the
  // server's Stop does not reach it.
  struct Raw {
    Stream stream;
    std::string read_ahead;
  };
  virtual asio::awaitable<Result<Raw>> Upgrade(ResponseHead head) = 0;
};

// Exceptions and unanswered requests become 500, a started and not finished response a cut; an
// unread request body is drained up to 1 MiB or the connection closed. Errors that the server
// itself answers have the body {"code":N,"message":"..."}. The Exchange is gone when the handler
// returns.
using Handler = std::function<asio::awaitable<void>(Exchange&)>;

class Server {
 public:
  Server(asio::any_io_executor executor, Handler handler, ServerLimits limits = {});
  ~Server();  // closes listeners and cuts connections
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  Server(Server&&) = delete;
  Server& operator=(Server&&) = delete;

  // `listener`: a bound and listening stream socket of any family.
  Result<void> Serve(UniqueFd listener);
  // One connection that somebody else accepted.
  void ServeConnection(Stream stream, std::string peer);
  // Stops accepting and cuts what is open.
  void Stop();

  struct Impl;  // in server.cc

 private:
  std::shared_ptr<Impl> impl_;
};

// "127.0.0.1:3000", "[::1]:3000", "0.0.0.0:80". kConflict when the port is taken (names it).
Result<UniqueFd> ListenTcp(const std::string& address);
Result<UniqueFd> ListenUnix(const std::string& path, unsigned mode);
Result<UniqueFd> ListenVsock(uint32_t port);  // any cid

}  // namespace space::http
