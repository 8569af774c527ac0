#include "http/client.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "http/deadline.h"
#include "http/event.h"
#include "http/server.h"
#include "http/spawn.h"

namespace space::http {
namespace {

// Runs coroutines to their end on this thread.
class Loop {
 public:
  template <class T>
  T Run(asio::awaitable<T> work) {
    std::optional<T> value;
    asio::co_spawn(io_, Store(std::move(work), &value), [this](const std::exception_ptr& thrown) {
      EXPECT_FALSE(thrown);
      io_.stop();
    });
    io_.restart();
    io_.run();
    return std::move(*value);
  }
  asio::any_io_executor executor() { return io_.get_executor(); }
  std::pair<Stream, UniqueFd> Pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return {std::move(*AdoptStream(executor(), UniqueFd(ends[0]))), UniqueFd(ends[1])};
  }

 private:
  template <class T>
  static asio::awaitable<void> Store(asio::awaitable<T> work, std::optional<T>* value) {
    value->emplace(co_await std::move(work));
  }
  asio::io_context io_{1};
};

std::string ReadSome(const UniqueFd& fd) {
  char buffer[4096];
  const ssize_t count = ::read(fd.get(), buffer, sizeof(buffer));
  return {buffer, count > 0 ? static_cast<size_t>(count) : 0};
}

RequestHead Request(std::string method) { return {std::move(method), "/t", {{"Host", "h"}}}; }

// One exchange with a server that answers `wire` and, unless told to stay, ends.
struct Outcome {
  Result<SimpleResponse> response;
  bool is_reusable;
};
Outcome Exchange1(const std::string& method, const std::string& wire, bool stays = false) {
  Loop loop;
  auto [stream, server] = loop.Pair();
  EXPECT_TRUE(WriteFull(server.get(), wire).has_value());
  if (!stays) {
    ::shutdown(server.get(), SHUT_WR);
  }
  ClientConnection connection(std::move(stream));
  auto response = loop.Run(Call(connection, Request(method), "", 1000, stays ? 100 : 5000));
  return {std::move(response), connection.reusable()};
}

struct GoodCase {
  std::string method;
  std::string wire;
  int status;
  std::string body;
  bool is_reusable;
};

TEST(Client, ReadsEveryFraming) {
  const std::vector<GoodCase> cases = {
      {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi", true},
      {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", true},
      {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 200,
       "hi", true},
      {"GET", "HTTP/1.1 200 OK\r\n\r\nhi", 200, "hi", false},
      {"GET", "HTTP/1.0 200 OK\r\n\r\nhi", 200, "hi", false},
      {"GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", 200, "hi", false},
      {"GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", true},
      {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, "", true},
      {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, "", true},
      {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, "", true},
      {"HEAD", "HTTP/1.1 200 OK\r\n\r\n", 200, "", true},
      {"GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi", 200, "hi",
       false},
      {"GET",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nA: b\r\n\r\nHTTP/1.1 201 C\r\n"
       "Content-Length: 1\r\n\r\nx",
       201, "x", true},
      {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxEXTRA", 200, "x", false},
  };
  for (const GoodCase& c : cases) {
    const Outcome outcome = Exchange1(c.method, c.wire);
    ASSERT_TRUE(outcome.response.has_value()) << c.wire << outcome.response.error().message();
    EXPECT_EQ(outcome.response->head.status, c.status) << c.wire;
    EXPECT_EQ(outcome.response->body, c.body) << c.wire;
    EXPECT_EQ(outcome.is_reusable, c.is_reusable) << c.wire;
  }
}

struct BadCase {
  std::string wire;
  ErrorCode code;
};

TEST(Client, HostileResponsesAreErrors) {
  std::string interim;
  for (int i = 0; i < 40; ++i) {
    interim += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  const std::vector<BadCase> cases = {
      {"", ErrorCode::kUnavailable},
      {"HTTP/1.1 200", ErrorCode::kIo},
      {"SSH-2.0-OpenSSH\r\n", ErrorCode::kIo},
      {"SSH-2.0-OpenSSH\r\n\r\n", ErrorCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\n\n", ErrorCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", ErrorCode::kIo},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", ErrorCode::kIo},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ErrorCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       ErrorCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\r\nX: " + std::string(70000, 'a') + "\r\n\r\n",
       ErrorCode::kInvalidArgument},
      {"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + std::string(2000, 'x'),
       ErrorCode::kExhausted},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + std::string(70000, 'x'),
       ErrorCode::kInvalidArgument},
      {interim, ErrorCode::kInvalidArgument},
  };
  for (const BadCase& c : cases) {
    const Outcome outcome = Exchange1("GET", c.wire);
    ASSERT_FALSE(outcome.response.has_value()) << c.wire;
    EXPECT_EQ(outcome.response.error().code(), c.code)
        << c.wire.substr(0, 100) << outcome.response.error().message();
    EXPECT_FALSE(outcome.is_reusable);
  }
}

TEST(Client, CallTimesOut) {
  const Outcome outcome = Exchange1("GET", "HTTP/1.1 200 OK\r\n", true);
  EXPECT_EQ(outcome.response.error().code(), ErrorCode::kTimeout);
  EXPECT_FALSE(outcome.is_reusable);
}

TEST(Client, WritesRequestsAsToldAndReusesTheConnection) {
  Loop loop;
  auto [stream, server] = loop.Pair();
  ClientConnection connection(std::move(stream));
  EXPECT_TRUE(loop.Run(connection.Send(Request("POST"), std::nullopt)).has_value());
  EXPECT_TRUE(loop.Run(connection.Write("hello world")).has_value());
  EXPECT_FALSE(connection.reusable());
  EXPECT_TRUE(loop.Run(connection.FinishRequest()).has_value());
  EXPECT_EQ(ReadSome(server),
            "POST /t HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n"
            "0\r\n\r\n");
  ASSERT_TRUE(
      WriteFull(server.get(), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").has_value());
  EXPECT_EQ(loop.Run(connection.ReadHead())->status, 200);
  EXPECT_FALSE(connection.reusable());
  EXPECT_EQ(loop.Run(connection.ReadAll(10)).value_or(""), "ok");
  EXPECT_TRUE(connection.reusable());
  EXPECT_TRUE(loop.Run(connection.Send(Request("POST"), 0)).has_value());
  EXPECT_EQ(ReadSome(server), "POST /t HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  EXPECT_FALSE(connection.reusable());
}

TEST(Client, RefusesToSendBodiesOfTheWrongLength) {
  Loop loop;
  auto [stream, server] = loop.Pair();
  ClientConnection connection(std::move(stream));
  EXPECT_TRUE(loop.Run(connection.Send(Request("PUT"), 3)).has_value());
  EXPECT_FALSE(loop.Run(connection.Write("1234")).has_value());
  EXPECT_TRUE(loop.Run(connection.Write("12")).has_value());
  EXPECT_FALSE(loop.Run(connection.FinishRequest()).has_value());
  EXPECT_FALSE(connection.reusable());
}

TEST(Client, TakesTheStreamAfter101) {
  Loop loop;
  auto [stream, server] = loop.Pair();
  ASSERT_TRUE(WriteFull(server.get(), "HTTP/1.1 101 Up\r\nUpgrade: x\r\n\r\nearly").has_value());
  ClientConnection connection(std::move(stream));
  EXPECT_TRUE(loop.Run(connection.Send(Request("GET"), 0)).has_value());
  EXPECT_EQ(loop.Run(connection.ReadHead())->status, 101);
  EXPECT_FALSE(connection.reusable());
  auto [raw, rest] = std::move(connection).TakeStream();
  EXPECT_EQ(rest, "early");
  EXPECT_TRUE(raw.is_open());
}

TEST(Stream, ConnectSaysWhyItFailed) {
  Loop loop;
  auto listener = ListenTcp("127.0.0.1:0");
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  *listener = UniqueFd();
  const auto refused = loop.Run(ConnectTcp("127.0.0.1", ntohs(address.sin_port), 1000));
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
  const auto named = loop.Run(ConnectTcp("example.org", 80, 1000));
  EXPECT_EQ(named.error().code(), ErrorCode::kInvalidArgument);
  const auto absent = loop.Run(ConnectUnix("/nonexistent/socket", 1000));
  EXPECT_EQ(absent.error().code(), ErrorCode::kUnavailable);
}

asio::awaitable<void> SpliceOwned(Stream a, Stream b) { co_await Splice(a, b); }

TEST(Stream, SplicePassesHalfCloseAndThenTheRest) {
  Loop loop;
  auto [a, left] = loop.Pair();
  auto [b, right] = loop.Pair();
  ASSERT_TRUE(WriteFull(left.get(), "question").has_value());
  ::shutdown(left.get(), SHUT_WR);
  Spawn(loop.executor(), SpliceOwned(std::move(a), std::move(b)), "splice");
  const auto take = [](Stream end) -> asio::awaitable<std::string> {
    std::string text(100, '\0');
    const auto [error, count] = co_await asio::async_read(end, asio::buffer(text), kNoThrow);
    EXPECT_EQ(error, asio::error::eof);
    text.resize(count);
    co_await asio::async_write(end, asio::buffer(std::string_view("answer")), kNoThrow);
    co_return text;
  };
  auto far = AdoptStream(loop.executor(), std::move(right));
  EXPECT_EQ(loop.Run(take(std::move(*far))), "question");
  auto near = AdoptStream(loop.executor(), std::move(left));
  const auto finish = [](Stream end) -> asio::awaitable<std::string> {
    std::string text(100, '\0');
    const auto [error, count] = co_await asio::async_read(end, asio::buffer(text), kNoThrow);
    text.resize(count);
    co_return text;
  };
  EXPECT_EQ(loop.Run(finish(std::move(*near))), "answer");
}

TEST(Deadline, CancelsTheWorkAndLeavesNothingRunning) {
  Loop loop;
  bool has_left = false;
  const auto wait = [](bool* left) -> asio::awaitable<Result<int>> {
    struct Leaving {
      bool* flag;
      ~Leaving() { *flag = true; }
    } const leaving{left};
    Event never(co_await asio::this_coro::executor);
    co_await never.Wait();
    co_return 1;
  };
  EXPECT_EQ(loop.Run(WithDeadline(wait(&has_left), 20)).error().code(), ErrorCode::kTimeout);
  EXPECT_TRUE(has_left);
}

TEST(Deadline, ReturnsWhatCameInTime) {
  Loop loop;
  const auto seven = []() -> asio::awaitable<Result<int>> { co_return 7; };
  EXPECT_EQ(loop.Run(WithDeadline(seven(), 10'000)).value_or(0), 7);
  const auto thrower = []() -> asio::awaitable<Result<int>> {
    throw std::runtime_error("x");
    co_return 7;
  };
  EXPECT_EQ(loop.Run(WithDeadline(thrower(), 10'000)).error().code(), ErrorCode::kInternal);
}

}  // namespace
}  // namespace space::http
