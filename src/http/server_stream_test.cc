// Streams: backpressure, cuts, disconnects, upgrades, many connections.
#include <atomic>
#include <future>
#include <string>
#include <vector>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "http/client.h"
#include "http/event.h"
#include "http/spawn.h"
#include "http/test_server.h"

namespace space::http {
namespace {

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr std::string_view kChunkedPost =
    "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
constexpr auto kPatience = std::chrono::seconds(10);

ResponseHead Ok() { return {200, {}}; }

// Resident memory now, in MiB.
size_t ResidentMebibytes() {
  const std::string text = ReadFile("/proc/self/statm").value_or("0 0");
  return std::stoul(text.substr(text.find(' '))) / 256;
}

// Counts the body and answers with its size.
asio::awaitable<void> CountBody(Exchange& exchange) {
  std::vector<char> buffer(32 * 1024);
  uint64_t total = 0;
  while (true) {
    const auto count = co_await exchange.Read(buffer);
    if (!count || *count == 0) {
      break;
    }
    total += *count;
  }
  co_await exchange.Respond(Ok(), std::to_string(total));
}

TEST(ServerStream, TakesHundredMebibytesInConstantMemory) {
  TestServer server(CountBody);
  RawClient client(server.port());
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  [[maybe_unused]] const size_t before = ResidentMebibytes();  // no figure under ASan
  ASSERT_TRUE(client.Send(kChunkedPost));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.Send(chunk));
  }
  ASSERT_TRUE(client.Send("0\r\n\r\n"));
  EXPECT_NE(client.ReadUntil("104857600").find("104857600"), std::string::npos);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(ResidentMebibytes(), before + 16);
#endif
}

TEST(ServerStream, SendsHundredMebibytesInConstantMemory) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const std::string block(1 << 20, 'y');
    co_await exchange.Start(Ok(), std::nullopt);
    for (int i = 0; i < 100; ++i) {
      co_await exchange.Write(block);
    }
    co_await exchange.Finish();
  });
  const auto count = [](uint16_t port) -> asio::awaitable<Result<uint64_t>> {
    SPACE_CO_TRY(Stream stream, co_await ConnectTcp("localhost", port, 5000), "connect");
    ClientConnection connection(std::move(stream));
    RequestHead head{"GET", "/", {}};
    SPACE_CO_TRY_VOID(co_await connection.Send(std::move(head), 0), "send");
    SPACE_CO_TRY(const ResponseHead answer, co_await connection.ReadHead(), "read");
    std::vector<char> buffer(32 * 1024);
    uint64_t total = 0;
    while (true) {
      SPACE_CO_TRY(const size_t got, co_await connection.Read(buffer), "read");
      if (got == 0) {
        co_return total;
      }
      total += got;
    }
  };
  [[maybe_unused]] const size_t before = ResidentMebibytes();  // no figure under ASan
  EXPECT_EQ(server.Run(count(server.port())).value_or(0), 100U << 20);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(ResidentMebibytes(), before + 16);
#endif
}

TEST(ServerStream, WriteWaitsForASlowClient) {
  static std::atomic<bool> has_written;
  has_written = false;
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const std::string big(64 << 20, 'z');
    co_await exchange.Start(Ok(), big.size());
    co_await exchange.Write(big);
    has_written = true;
    co_await exchange.Finish();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  const std::string head = client.ReadUntil("\r\n\r\n");
  EXPECT_FALSE(has_written);  // no socket buffer holds 64 MiB
  EXPECT_EQ(client.ReadAll().size(), 64U << 20);
  EXPECT_EQ(client.end_errno(), 0);
  EXPECT_TRUE(has_written);
}

TEST(ServerStream, UnreadBodyHoldsTheClientBack) {
  TestServer server(
      [](Exchange& exchange) -> asio::awaitable<void> { co_await exchange.WaitForPeerClose(); });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send(kChunkedPost));
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'x') + "\r\n";
  int sent = 0;
  // A second without room to send: nobody takes the bytes. Far fewer than 256 MiB fit.
  pollfd waiting{client.fd(), POLLOUT, 0};
  while (sent < 256 && ::poll(&waiting, 1, 1000) == 1) {
    ::send(client.fd(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ++sent;
  }
  EXPECT_LT(sent, 256);
}

TEST(ServerStream, WaitForPeerCloseReturnsOnDisconnect) {
  static std::promise<void>* closed;
  std::promise<void> promise;
  closed = &promise;
  auto future = promise.get_future();
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.Start(Ok(), std::nullopt);
    co_await exchange.WaitForPeerClose();
    closed->set_value();
  });
  {
    RawClient client(server.port());
    ASSERT_TRUE(client.Send(kGet));
    client.ReadUntil("\r\n\r\n");
    EXPECT_EQ(future.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  }
  EXPECT_EQ(future.wait_for(kPatience), std::future_status::ready);
}

TEST(ServerStream, WaitForPeerCloseEndsWithTheHandlerAndKeepsPipelinedBytes) {
  static int ended;
  static std::promise<void>* all_ended;
  std::promise<void> promise;
  all_ended = &promise;
  ended = 0;
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const auto watch = [](asio::awaitable<void> wait) -> asio::awaitable<void> {
      co_await std::move(wait);
      if (++ended == 3) {
        all_ended->set_value();
      }
    };
    Spawn(co_await asio::this_coro::executor, watch(exchange.WaitForPeerClose()), "watch");
    co_await exchange.Respond(Ok(), exchange.request().target);
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_NE(client.ReadUntil("/1").find("/1"), std::string::npos);
  EXPECT_NE(client.ReadUntil("/2").find("/2"), std::string::npos);
  ASSERT_TRUE(client.Send("GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_NE(client.ReadAll().find("/3"), std::string::npos);
  EXPECT_EQ(promise.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(ServerStream, CutGivesTheClientAnError) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.Start(Ok(), std::nullopt);
    co_await exchange.Write("begin");
    if (exchange.request().target == "/cut") {
      exchange.Cut();
    }
  });
  for (const char* target : {"/cut", "/unfinished"}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string all = client.ReadAll();
    EXPECT_EQ(client.end_errno(), ECONNRESET) << target;
    EXPECT_EQ(all.find("0\r\n\r\n"), std::string::npos) << target;
  }
}

TEST(ServerStream, WrongLengthCutsInsteadOfConfusingTheClient) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.Start(Ok(), 4);
    const auto written =
        co_await exchange.Write(exchange.request().target == "/long" ? "12345" : "123");
    EXPECT_EQ(written.has_value(), exchange.request().target == "/short");
    const auto finished = co_await exchange.Finish();
    EXPECT_FALSE(finished.has_value());
  });
  for (const char* target : {"/long", "/short"}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    client.ReadAll();
    EXPECT_EQ(client.end_errno(), ECONNRESET) << target;
  }
}

TEST(ServerStream, StopCutsOpenStreams) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.Start(Ok(), std::nullopt);
    co_await exchange.WaitForPeerClose();
    const auto written = co_await exchange.Write("late");
    EXPECT_FALSE(written.has_value());
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send(kGet));
  client.ReadUntil("\r\n\r\n");
  asio::post(server.io(), [&] { server.server().Stop(); });
  client.ReadAll();
  EXPECT_EQ(client.end_errno(), ECONNRESET);
}

TEST(ServerStream, HalfClosedClientGetsItsAnswer) {
  TestServer server(CountBody);
  RawClient client(server.port());
  ASSERT_TRUE(client.Send(std::string(kChunkedPost) + "3\r\nabc\r\n0\r\n\r\n"));
  client.EndSending();
  const std::string all = client.ReadAll();
  EXPECT_TRUE(all.ends_with("\r\n\r\n3")) << all;
  EXPECT_EQ(client.end_errno(), 0);
}

TEST(ServerStream, TruncatedBodyIsAnErrorForTheHandler) {
  static std::promise<bool>* failed;
  std::promise<bool> promise;
  failed = &promise;
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const auto body = co_await exchange.ReadAll(1000);
    failed->set_value(!body.has_value() && body.error().code() == ErrorCode::kIo);
    co_await exchange.Respond(Ok(), "");
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send(std::string(kChunkedPost) + "3\r\nab"));
  client.EndSending();
  EXPECT_TRUE(promise.get_future().get());
}

TEST(ServerStream, TwoHundredConnectionsAtOnce) {
  TestServer server(CountBody);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    ASSERT_TRUE(clients.back()->Send(kChunkedPost));
  }
  for (const auto& client : clients) {
    ASSERT_TRUE(client->Send("5\r\nhello\r\n0\r\n\r\n"));
  }
  for (const auto& client : clients) {
    EXPECT_TRUE(client->ReadUntil("\r\n\r\n5").ends_with("\r\n\r\n5"));
  }
}

TEST(ServerStream, UpgradeHandsOverStreamAndReadAhead) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    ResponseHead head{101, {{"Connection", "Upgrade"}, {"Upgrade", "websocket"}}};
    auto raw = co_await exchange.Upgrade(std::move(head));
    EXPECT_TRUE(raw.has_value());
    std::string text = raw->read_ahead;
    while (text.size() < 9) {
      char more[16];
      const auto [error, count] =
          co_await raw->stream.async_read_some(asio::buffer(more), kNoThrow);
      EXPECT_FALSE(error);
      text.append(more, count);
    }
    co_await asio::async_write(raw->stream, asio::buffer(text), kNoThrow);
  });
  RawClient client(server.port());
  ASSERT_TRUE(
      client.Send("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                  "Upgrade: websocket\r\n\r\nearly"));
  EXPECT_EQ(
      client.ReadUntil("\r\n\r\n"),
      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
  ASSERT_TRUE(client.Send("late"));
  EXPECT_EQ(client.ReadAll(), "earlylate");
}

TEST(ServerStream, WritersTakeTurns) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    static constexpr size_t kSize = 8 << 20;
    const auto writer = [](Exchange* to, char c) -> asio::awaitable<void> {
      const std::string block(kSize, c);
      co_await to->Write(block);
    };
    using namespace asio::experimental::awaitable_operators;
    co_await exchange.Start(Ok(), std::nullopt);
    co_await (writer(&exchange, 'a') && writer(&exchange, 'b'));
    co_await exchange.Finish();
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  const std::string all = client.ReadAll();
  const std::string head = all.substr(0, all.find("\r\n\r\n") + 4);
  EXPECT_EQ(all, head + "800000\r\n" + std::string(8 << 20, 'a') + "\r\n800000\r\n" +
                     std::string(8 << 20, 'b') + "\r\n0\r\n\r\n");
}

}  // namespace
}  // namespace space::http
