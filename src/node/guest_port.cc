#include "node/guest_port.h"

#include <array>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "http/deadline.h"
#include "wire/ports.h"

namespace space {
namespace {

static_assert(kEnvdTcpPort == wire::kEnvdPort);

// The forwarder's greeting: two bytes of port, one byte of outcome.
asio::awaitable<Result<http::Stream>> AskForwarder(http::Stream stream, uint16_t port) {
  const std::array<unsigned char, 2> request = {static_cast<unsigned char>(port & 255),
                                                static_cast<unsigned char>(port >> 8)};
  unsigned char outcome = 1;
  const auto [write_error, written] =
      co_await asio::async_write(stream, asio::buffer(request), http::kNoThrow);
  if (write_error) {
    co_return Fail(ErrorCode::kUnavailable, "guest forwarder is gone");
  }
  const auto [read_error, got] =
      co_await asio::async_read(stream, asio::buffer(&outcome, 1), http::kNoThrow);
  if (read_error || outcome != 0) {
    co_return Fail(ErrorCode::kUnavailable, "guest port is not open", std::to_string(port));
  }
  co_return stream;
}

}  // namespace

asio::awaitable<Result<http::Stream>> ConnectGuestPort(std::shared_ptr<VmmClient> vmm,
                                                       uint16_t port, int limit_ms) {
  if (port == kEnvdTcpPort) {
    co_return co_await vmm->ConnectGuest(wire::kEnvdPort, limit_ms);
  }
  SPACE_CO_TRY(http::Stream stream, co_await vmm->ConnectGuest(wire::kForwardPort, limit_ms),
               "reach forwarder");
  co_return co_await http::WithDeadline(AskForwarder(std::move(stream), port), limit_ms);
}

}  // namespace space
