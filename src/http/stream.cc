#include "http/stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/write.hpp>

#include "http/deadline.h"
#include "http/event.h"

namespace space::http {
namespace {

using Endpoint = asio::generic::stream_protocol::endpoint;

bool IsInternet(int family) { return family == AF_INET || family == AF_INET6; }

void SetOption(int fd, int level, int name, int value) {
  // Refusal is harmless: these only tune.
  [[maybe_unused]] const int result = ::setsockopt(fd, level, name, &value, sizeof(value));
}

Error ConnectError(const boost::system::error_code& error, const std::string& where) {
  const int number = error.value();
  const bool is_absent = number == ECONNREFUSED || number == ENOENT || number == ECONNRESET ||
                         number == EHOSTUNREACH || number == ENETUNREACH || number == EAGAIN;
  const ErrorCode code = is_absent             ? ErrorCode::kUnavailable
                         : number == ETIMEDOUT ? ErrorCode::kTimeout
                         : number == EACCES    ? ErrorCode::kPermissionDenied
                                               : ErrorCode::kIo;
  return Error(code, "connect to " + where + ": " + error.message()).WithErrno(number);
}

asio::awaitable<Result<Stream>> ConnectTo(Endpoint endpoint, std::string where) {
  UniqueFd fd(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    co_return FailErrno("make socket");
  }
  SPACE_CO_TRY(Stream stream, AdoptStream(co_await asio::this_coro::executor, std::move(fd)),
               "connect");
  const auto [error] = co_await stream.async_connect(endpoint, kNoThrow);
  if (error) {
    co_return Fail(ConnectError(error, where));
  }
  co_return stream;
}

// Literal addresses only; "localhost" stands for both loopback addresses.
std::vector<Endpoint> Candidates(const std::string& host, uint16_t port) {
  if (host == "localhost") {
    std::vector<Endpoint> both = Candidates("127.0.0.1", port);
    both.push_back(Candidates("::1", port).front());
    return both;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    return {Endpoint(&v4, sizeof(v4), IPPROTO_TCP)};
  }
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string bare = has_brackets ? host.substr(1, host.size() - 2) : host;
  if (::inet_pton(AF_INET6, bare.c_str(), &v6.sin6_addr) == 1) {
    return {Endpoint(&v6, sizeof(v6), IPPROTO_TCP)};
  }
  return {};
}

// One direction of Splice. An error ends both, so that the other direction does not wait for ever.
asio::awaitable<void> Pump(Stream& from, Stream& to) {
  std::vector<char> buffer(64 * 1024);
  while (true) {
    const auto [read_error, count] = co_await from.async_read_some(asio::buffer(buffer), kNoThrow);
    if (read_error == asio::error::eof) {
      boost::system::error_code ignored;
      to.shutdown(Stream::shutdown_send, ignored);
      co_return;
    }
    if (!read_error) {
      const auto [write_error, written] =
          co_await asio::async_write(to, asio::buffer(buffer.data(), count), kNoThrow);
      if (!write_error) {
        continue;
      }
    }
    CutStream(from);
    CutStream(to);
    co_return;
  }
}

}  // namespace

Result<Stream> AdoptStream(asio::any_io_executor executor, UniqueFd fd) {
  int family = 0;
  int protocol = 0;
  socklen_t size = sizeof(family);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PROTOCOL, &protocol, &size) != 0) {
    return FailErrno("take over socket");
  }
  if (IsInternet(family)) {
    SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    // A peer whose machine is gone is noticed after about two minutes.
    SetOption(fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
    SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, 60);
    SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, 15);
    SetOption(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, 4);
  }
  Stream stream(executor);
  boost::system::error_code error;
  stream.assign(asio::generic::stream_protocol(family, protocol), fd.get(), error);
  if (error) {
    return Fail(ErrorCode::kIo, "take over socket: " + error.message());
  }
  [[maybe_unused]] const int owned_by_stream = fd.Release();
  return stream;
}

asio::awaitable<Result<Stream>> ConnectTcp(std::string host, uint16_t port, int limit_ms) {
  const std::vector<Endpoint> candidates = Candidates(host, port);
  const std::string where = host + ":" + std::to_string(port);
  Error last(ErrorCode::kInvalidArgument, "not a literal address: " + host);
  for (const Endpoint& endpoint : candidates) {
    auto connected = co_await WithDeadline(ConnectTo(endpoint, where), limit_ms);
    if (connected) {
      co_return std::move(connected);
    }
    last = std::move(connected).error();
  }
  co_return Fail(std::move(last));
}

asio::awaitable<Result<Stream>> ConnectUnix(std::string path, int limit_ms) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    co_return Fail(ErrorCode::kInvalidArgument, "path of unix socket is too long", path);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  co_return co_await WithDeadline(ConnectTo(Endpoint(&address, sizeof(address)), path), limit_ms);
}

void CutStream(Stream& stream) {
  if (!stream.is_open()) {
    return;
  }
  boost::system::error_code ignored;
  if (IsInternet(stream.local_endpoint(ignored).protocol().family())) {
    const linger reset{1, 0};
    [[maybe_unused]] const int result =
        ::setsockopt(stream.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  }
  stream.close(ignored);
}

asio::awaitable<void> Splice(Stream& a, Stream& b) {
  using namespace asio::experimental::awaitable_operators;
  co_await (Pump(a, b) && Pump(b, a));
  boost::system::error_code ignored;
  a.close(ignored);
  b.close(ignored);
}

}  // namespace space::http
