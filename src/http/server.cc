#include "http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <exception>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/log.h"
#include "http/exchange.h"
#include "http/spawn.h"

namespace space::http {

using Listener = asio::posix::stream_descriptor;

struct Server::Impl {
  Impl(asio::any_io_executor executor_in, Handler handler_in, ServerLimits limits_in)
      : executor(std::move(executor_in)),
        handler(std::move(handler_in)),
        limits(limits_in),
        place_free(executor) {}

  asio::any_io_executor executor;
  Handler handler;
  ServerLimits limits;
  Event place_free;  // a connection has ended, or waits for a request
  std::unordered_set<std::shared_ptr<Connection>> open;
  std::vector<std::weak_ptr<Listener>> listeners;
  bool is_stopped = false;
};

namespace {

constexpr uint64_t kDrainBytes = 1 << 20;
constexpr std::chrono::seconds kDrainLimit{30};
constexpr int kAcceptPauseMs = 100;

using Owner = std::shared_ptr<Server::Impl>;

std::string PeerText(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return std::string(text.data()) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return "[" + std::string(text.data()) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  if (address.ss_family == AF_VSOCK) {
    const auto& vm = reinterpret_cast<const sockaddr_vm&>(address);
    return "vsock:" + std::to_string(vm.svm_cid) + ":" + std::to_string(vm.svm_port);
  }
  return "unix";
}

struct Incoming {
  CheckedRequest request;
  BodyDecoder body;
};
using HeadResult = tl::expected<Incoming, Refusal>;

// Status 0: nothing to answer, the connection just ends.
tl::unexpected<Refusal> EndQuietly() { return tl::unexpected<Refusal>(Refusal{0, ""}); }

asio::awaitable<HeadResult> ReadHead(std::shared_ptr<Connection> connection, ServerLimits limits) {
  const HeadLimits head_limits{.bytes = limits.head_bytes};
  HeadScanner scanner(head_limits);
  ReadBuffer& input = connection->input();
  bool has_begun = false;
  connection->ShrinkInput();
  connection->ArmDeadline(limits.idle_timeout_ms);
  while (true) {
    if (!has_begun && !input.empty()) {
      has_begun = true;
      connection->ArmDeadline(limits.head_timeout_ms);
    }
    const auto length = scanner.Scan(input.data());
    if (!length) {
      co_return tl::unexpected<Refusal>(length.error());
    }
    if (length->has_value()) {
      const std::string_view raw = input.data().substr(0, **length);
      auto checked = CheckRequestHead(raw, head_limits);
      if (!checked) {
        co_return tl::unexpected<Refusal>(std::move(checked).error());
      }
      auto body = BodyDecoder::ForRequest(raw, *checked);
      if (!body) {
        co_return tl::unexpected<Refusal>(Refusal{400, body.error().message()});
      }
      input.Consume(raw.size());
      co_return Incoming{std::move(*checked), std::move(*body)};
    }
    if (connection->has_timed_out() && has_begun) {
      co_return tl::unexpected<Refusal>(Refusal{408, "the head did not arrive in time"});
    }
    if (connection->has_timed_out() || connection->input_ended()) {
      co_return EndQuietly();
    }
    connection->StartFill(Connection::kIdleBuffer, limits.head_bytes + 1);
    if (!co_await connection->WaitInput()) {
      co_return EndQuietly();
    }
  }
}

asio::awaitable<void> Refuse(std::shared_ptr<Connection> connection, Refusal refusal) {
  ResponseHead head = JsonHead(refusal.status);
  const std::string body = JsonError(refusal.status, refusal.reason);
  const auto text =
      WriteResponseHead(head, {BodyLength::Kind::kLength, body.size()}, ConnectionField::kClose);
  if (text) {
    const Connection::Parts parts = {*text, body, ""};
    const auto sent = co_await Connection::Send(connection, parts);
    if (sent) {
      co_await Connection::Linger(connection);
    }
  }
}

// What the handler threw, as text; empty when it returned.
asio::awaitable<std::string> RunHandler(Owner server, ServerExchange& exchange) {
  try {
    co_await server->handler(exchange);
  } catch (const std::exception& e) {
    co_return std::string("threw: ") + e.what();
  } catch (...) {
    co_return std::string("threw something");
  }
  co_return std::string();
}

// True when the response is whole.
asio::awaitable<bool> SettleResponse(ServerExchange& exchange, std::shared_ptr<ExchangeState> state,
                                     std::string failure) {
  if (failure.empty() && !state->is_started && !state->connection->is_closed()) {
    failure = "did not answer";
  }
  if (!failure.empty()) {
    SPACE_LOG_LIMITED(log::Level::kError, "http_handler_failed", {"what", failure},
                      {"method", state->request.head.method});
  }
  if (!state->is_started && !state->connection->is_closed()) {
    ResponseHead head = JsonHead(500);
    std::string body = JsonError(500, "internal error");
    const auto sent = co_await exchange.Respond(std::move(head), std::move(body));
    co_return sent.has_value();
  }
  co_return state->is_finished&& failure.empty();
}

// Reads away what the handler left of the request's body, so that the next request can be seen.
asio::awaitable<bool> Drain(ServerExchange& exchange, std::shared_ptr<ExchangeState> state) {
  std::vector<char> scrap(state->body.is_done() ? 0 : 16 * 1024);
  uint64_t drained = 0;
  const auto give_up = std::chrono::steady_clock::now() + kDrainLimit;
  while (!state->body.is_done() && drained <= kDrainBytes &&
         std::chrono::steady_clock::now() < give_up) {
    const auto count = co_await exchange.Read(scrap);
    if (!count) {
      co_return false;
    }
    drained += *count;
  }
  co_return state->body.is_done();
}

// True when another request may follow.
asio::awaitable<bool> ServeOne(Owner server, std::shared_ptr<Connection> connection,
                               Incoming incoming) {
  connection->WatchActivity(server->limits.stall_timeout_ms);
  const auto state = std::make_shared<ExchangeState>(connection, std::move(incoming.request),
                                                     std::move(incoming.body));
  ServerExchange exchange(state);
  std::string failure = co_await RunHandler(server, exchange);
  if (state->is_upgraded || connection->is_closed()) {
    state->is_ended = true;
    connection->WakeWaiters();
    co_return false;
  }
  const bool is_whole = co_await SettleResponse(exchange, state, std::move(failure));
  bool may_follow = is_whole && state->keep_alive && !server->is_stopped;
  if (!is_whole) {
    connection->Cut();
  } else if (may_follow) {
    connection->WatchActivity(server->limits.head_timeout_ms);
    may_follow = co_await Drain(exchange, state);
  }
  state->is_ended = true;
  connection->WakeWaiters();
  if (is_whole && !may_follow && !connection->is_closed()) {
    co_await Connection::Linger(connection);
  }
  co_return may_follow;
}

asio::awaitable<void> ServeRequests(Owner server, std::shared_ptr<Connection> connection) {
  while (!connection->is_closed()) {
    connection->idle_since = std::chrono::steady_clock::now();
    server->place_free.Notify();
    HeadResult incoming = co_await ReadHead(connection, server->limits);
    connection->idle_since.reset();
    if (!incoming) {
      if (incoming.error().status != 0) {
        SPACE_LOG_LIMITED(log::Level::kInfo, "http_head_refused", {"peer", connection->peer()},
                          {"reason", incoming.error().reason});
        co_await Refuse(connection, std::move(incoming).error());
      }
      break;
    }
    if (!co_await ServeOne(server, connection, std::move(*incoming))) {
      break;
    }
  }
}

asio::awaitable<void> RunConnection(Owner server, std::shared_ptr<Connection> connection) {
  try {
    co_await ServeRequests(server, connection);
  } catch (const std::exception& e) {
    SPACE_LOG_LIMITED(log::Level::kError, "http_connection_threw", {"what", e.what()});
  }
  if (!connection->is_closed()) {
    connection->Close();
  }
  server->open.erase(connection);
  server->place_free.Notify();
}

void Begin(const Owner& server, Stream stream, std::string peer) {
  auto connection = std::make_shared<Connection>(std::move(stream), std::move(peer));
  server->open.insert(connection);
  Spawn(server->executor, RunConnection(server, connection), "http connection");
}

// Accepts one; errno when there was none.
int AcceptOne(const Owner& server, int listener) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  UniqueFd fd(::accept4(listener, reinterpret_cast<sockaddr*>(&address), &size,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    return errno;
  }
  auto stream = AdoptStream(server->executor, std::move(fd));
  if (stream) {
    Begin(server, std::move(*stream), PeerText(address));
  }
  return 0;
}

// None when all of them are busy.
void CutLongestIdle(const Owner& server) {
  std::shared_ptr<Connection> oldest;
  for (const auto& connection : server->open) {
    if (connection->idle_since && !connection->is_closed() &&
        (!oldest || *connection->idle_since < *oldest->idle_since)) {
      oldest = connection;
    }
  }
  if (oldest) {
    oldest->Cut();
  }
}

asio::awaitable<void> AcceptLoop(Owner server, std::shared_ptr<Listener> listener) {
  asio::steady_timer pause(server->executor);
  while (!server->is_stopped) {
    if (server->open.size() >= server->limits.connections) {
      SPACE_LOG_LIMITED(log::Level::kWarn, "http_connections_full",
                        {"limit", server->limits.connections});
      const auto [error] = co_await listener->async_wait(Listener::wait_read, kNoThrow);
      if (error) {
        co_return;
      }
      pollfd queue{.fd = listener->native_handle(), .events = POLLIN, .revents = 0};
      if (::poll(&queue, 1, 0) == 1 && server->open.size() >= server->limits.connections) {
        CutLongestIdle(server);
        co_await server->place_free.Wait();
      }
      continue;  // asio's word may be of the time before the wait
    }
    const int number = AcceptOne(server, listener->native_handle());
    if (number == EAGAIN || number == EWOULDBLOCK) {
      const auto [error] = co_await listener->async_wait(Listener::wait_read, kNoThrow);
      if (error) {
        co_return;
      }
    } else if (number != 0 && number != EINTR && number != ECONNABORTED) {
      // Out of descriptors or memory: the connection stays in the queue, which is always readable.
      SPACE_LOG_LIMITED(log::Level::kError, "http_accept_failed", {"errno", number});
      pause.expires_after(std::chrono::milliseconds(kAcceptPauseMs));
      co_await pause.async_wait(kNoThrow);
    }
  }
}

}  // namespace

Server::Server(asio::any_io_executor executor, Handler handler, ServerLimits limits)
    : impl_(std::make_shared<Impl>(std::move(executor), std::move(handler), limits)) {}

Server::~Server() { Stop(); }

Result<void> Server::Serve(UniqueFd listener) {
  int is_listening = 0;
  socklen_t size = sizeof(is_listening);
  if (::getsockopt(listener.get(), SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0) {
    return FailErrno("serve");
  }
  if (is_listening == 0 || ::fcntl(listener.get(), F_SETFL, O_NONBLOCK) != 0) {
    return Fail(ErrorCode::kInvalidArgument, "serve: the socket does not listen");
  }
  auto descriptor = std::make_shared<Listener>(impl_->executor);
  boost::system::error_code error;
  descriptor->assign(listener.get(), error);
  if (error) {
    return Fail(ErrorCode::kIo, "serve: " + error.message());
  }
  [[maybe_unused]] const int owned_by_descriptor = listener.Release();
  impl_->listeners.push_back(descriptor);
  Spawn(impl_->executor, AcceptLoop(impl_, descriptor), "http accept");
  return {};
}

void Server::ServeConnection(Stream stream, std::string peer) {
  Begin(impl_, std::move(stream), std::move(peer));
}

void Server::Stop() {
  impl_->is_stopped = true;
  for (const auto& weak : impl_->listeners) {
    if (const auto listener = weak.lock()) {
      boost::system::error_code ignored;
      listener->close(ignored);
    }
  }
  impl_->listeners.clear();
  const auto open = impl_->open;
  for (const auto& connection : open) {
    connection->Cut();
  }
  impl_->place_free.Notify();
}

}  // namespace space::http
