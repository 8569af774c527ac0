#include "http/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "http/test_server.h"

namespace space::http {
namespace {

constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

// Answers with method, target and body.
asio::awaitable<void> Echo(Exchange& exchange) {
  auto body = co_await exchange.ReadAll(1 << 20);
  if (!body) {
    ResponseHead refused{413, {}};
    co_await exchange.Respond(std::move(refused), body.error().message());
    co_return;
  }
  std::string text = exchange.request().method + " " + exchange.request().target + " " + *body;
  ResponseHead head{200, {}};
  co_await exchange.Respond(std::move(head), std::move(text));
}

TEST(Server, KeepsConnectionForFurtherRequests) {
  TestServer server(Echo);
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(client.Send(kGet));
    EXPECT_EQ(client.ReadUntil("GET /a "), "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nGET /a ");
  }
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  TestServer server(Echo);
  RawClient client(server.port());
  ASSERT_TRUE(
      client.Send("POST /1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
                  "POST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  "3;ext=1\r\ndef\r\n0\r\nTrailer: t\r\n\r\n"
                  "GET /3 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  const std::string all = client.ReadAll();
  const size_t one = all.find("POST /1 abc");
  const size_t two = all.find("POST /2 def");
  const size_t three = all.find("GET /3 ");
  EXPECT_NE(three, std::string::npos) << all;
  EXPECT_LT(one, two);
  EXPECT_LT(two, three);
}

TEST(Server, ReadsChunkedBodySplitAtEveryByte) {
  TestServer server(Echo);
  RawClient client(server.port());
  const std::string request =
      "POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n";
  for (const char c : request) {
    ASSERT_TRUE(client.Send({&c, 1}));
  }
  EXPECT_NE(client.ReadUntil("0123456789x").find("POST /v2/sandboxes 0123456789x"),
            std::string::npos);
}

TEST(Server, RefusesMalformedHeadsAndCloses) {
  TestServer server(Echo);
  for (const char* head :
       {"GET / HTTP/1.1\n\n", "\x16\x03\x01\x02", "GET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: x\r\n y: z\r\n\r\n"}) {
    RawClient client(server.port());
    ASSERT_TRUE(client.Send(head));
    const std::string all = client.ReadAll();
    EXPECT_TRUE(all.starts_with("HTTP/1.1 400 Bad Request\r\n")) << head << all;
    EXPECT_NE(all.find("{\"code\":400,\"message\":\""), std::string::npos) << all;
    EXPECT_NE(all.find("Connection: close\r\n"), std::string::npos) << all;
    EXPECT_EQ(all.find("smuggled"), std::string::npos) << all;
    EXPECT_EQ(client.end_errno(), 0) << head;
  }
}

TEST(Server, AnswersHugeHeadWhileItIsStillBeingSent) {
  TestServer server(Echo);
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(10 << 20, 'a')));
  const std::string all = client.ReadAll();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 431 ")) << all;
  EXPECT_EQ(client.end_errno(), 0);
}

TEST(Server, ThrowingHandlerIsInternalError) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().target == "/throw") {
      throw std::runtime_error("secret");
    }
    if (exchange.request().target == "/after-start") {
      co_await exchange.Start({200, {}}, std::nullopt);
      throw 1;
    }
  });
  RawClient client(server.port());
  for (const char* target : {"/throw", "/silent"}) {
    ASSERT_TRUE(client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    const std::string head = client.ReadUntil("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 500 ")) << head;
    EXPECT_EQ(client.ReadUntil("}"), "{\"code\":500,\"message\":\"internal error\"}");
  }
  ASSERT_TRUE(client.Send("GET /after-start HTTP/1.1\r\nHost: x\r\n\r\n"));
  client.ReadAll();
  EXPECT_EQ(client.end_errno(), ECONNRESET);
}

TEST(Server, HeadAndBodilessStatusesSendNoBody) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const int status = std::stoi(exchange.request().target.substr(1));
    co_await exchange.Respond({status, {}}, "body");
  });
  RawClient client(server.port());
  ASSERT_TRUE(
      client.Send("HEAD /200 HTTP/1.1\r\nHost: x\r\n\r\nGET /204 HTTP/1.1\r\nHost: x\r\n\r\n"
                  "GET /304 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.ReadAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
            "HTTP/1.1 304 Not Modified\r\nConnection: close\r\n\r\n");
}

TEST(Server, StreamsWithAndWithoutLength) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    const bool has_length = exchange.request().target == "/length";
    co_await exchange.Start({200, {}}, has_length ? std::optional<uint64_t>(6) : std::nullopt);
    co_await exchange.Write("abc");
    co_await exchange.Write("");
    co_await exchange.Write("def");
    co_await exchange.Finish();
  });
  RawClient client(server.port());
  ASSERT_TRUE(
      client.Send("GET /length HTTP/1.1\r\nHost: x\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\n"
                  "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_EQ(client.ReadAll(),
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdefHTTP/1.1 200 OK\r\n\r\n"
            "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
            "3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n");
  RawClient old(server.port());
  ASSERT_TRUE(old.Send("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_EQ(old.ReadAll(), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcdef");
}

TEST(Server, AnswersContinueOnFirstRead) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    if (exchange.request().target == "/refuse") {
      co_await exchange.Respond({403, {}}, "");
      co_return;
    }
    co_await Echo(exchange);
  });
  RawClient client(server.port());
  const std::string rest =
      " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
  ASSERT_TRUE(client.Send("PUT /take" + rest));
  EXPECT_EQ(client.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.Send("ok"));
  EXPECT_TRUE(client.ReadUntil("PUT /take ok").ends_with("PUT /take ok"));
  ASSERT_TRUE(client.Send("PUT /refuse" + rest));
  EXPECT_EQ(client.ReadAll(),
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

TEST(Server, DrainsSmallUnreadBodiesOnly) {
  TestServer server([](Exchange& exchange) -> asio::awaitable<void> {
    co_await exchange.Respond({200, {}}, exchange.request().target);
  });
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("POST /one HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" +
                          std::string(100000, 'x') + std::string(kGet)));
  EXPECT_TRUE(client.ReadUntil("/one").ends_with("/one"));
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n/a").ends_with("/a"));
  ASSERT_TRUE(client.Send("POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" +
                          std::string(5000000, 'x')));
  EXPECT_TRUE(client.ReadAll().ends_with("/big"));
  EXPECT_EQ(client.end_errno(), 0);
}

TEST(Server, ReadAllRefusesBeyondItsLimit) {
  TestServer server(Echo);
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"));
  EXPECT_TRUE(client.ReadUntil("\r\n\r\n").starts_with("HTTP/1.1 413 "));
}

TEST(Server, HeadTimeoutAnswers408) {
  TestServer server(Echo, {.head_timeout_ms = 50});
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("GET / HT"));
  EXPECT_TRUE(client.ReadAll().starts_with("HTTP/1.1 408 "));
}

TEST(Server, IdleTimeoutClosesInOrder) {
  TestServer server(Echo, {.idle_timeout_ms = 50});
  RawClient client(server.port());
  ASSERT_TRUE(client.Send(kGet));
  EXPECT_TRUE(client.ReadAll().ends_with("GET /a "));
  EXPECT_EQ(client.end_errno(), 0);
}

TEST(Server, StallTimeoutCutsAStuckBody) {
  TestServer server(Echo, {.stall_timeout_ms = 50});
  RawClient client(server.port());
  ASSERT_TRUE(client.Send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\na"));
  EXPECT_EQ(client.ReadAll(), "");
  EXPECT_EQ(client.end_errno(), ECONNRESET);
}

TEST(Server, FurtherConnectionsWaitForTheirTurn) {
  TestServer server(Echo, {.connections = 1});
  auto first = std::make_unique<RawClient>(server.port());
  ASSERT_TRUE(
      first->Send("POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                  "Expect: 100-continue\r\n\r\n"));
  EXPECT_TRUE(first->ReadUntil("100 Continue\r\n\r\n").ends_with("\r\n\r\n"));
  RawClient second(server.port());
  ASSERT_TRUE(second.Send(kGet));
  pollfd waiting{second.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 100), 0);
  ASSERT_TRUE(first->Send("12"));
  EXPECT_TRUE(first->ReadUntil("POST /a ").ends_with("POST /a "));
  EXPECT_TRUE(second.ReadUntil("GET /a ").ends_with("GET /a "));
}

TEST(Server, ANewConnectionTakesThePlaceOfTheLongestIdleOne) {
  TestServer server(Echo, {.connections = 2});
  RawClient silent(server.port());  // never sends a byte
  RawClient busy(server.port());
  ASSERT_TRUE(busy.Send(kGet));
  EXPECT_TRUE(busy.ReadUntil("GET /a ").ends_with("GET /a "));
  RawClient late(server.port());
  ASSERT_TRUE(late.Send(kGet));
  EXPECT_TRUE(late.ReadUntil("GET /a ").ends_with("GET /a "));
  EXPECT_EQ(silent.ReadAll(), "");
  ASSERT_TRUE(busy.Send(kGet));
  EXPECT_TRUE(busy.ReadUntil("GET /a ").ends_with("GET /a "));
}

TEST(Server, ServesASocketPair) {
  TestServer server(Echo);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd ours(ends[1]);
  auto stream = AdoptStream(server.io().get_executor(), UniqueFd(ends[0]));
  ASSERT_TRUE(stream.has_value());
  asio::post(server.io(), [&server, s = std::move(*stream)]() mutable {
    server.server().ServeConnection(std::move(s), "pair");
  });
  ASSERT_TRUE(WriteFull(ours.get(), kGet).has_value());
  char buffer[200];
  EXPECT_GT(::read(ours.get(), buffer, sizeof(buffer)), 10);
}

TEST(Listen, NamesTheTakenPort) {
  auto first = ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(first.has_value());
  const std::string address = "127.0.0.1:" + std::to_string(PortOf(first->get()));
  const auto second = ListenTcp(address);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), ErrorCode::kConflict);
  EXPECT_NE(second.error().message().find(address), std::string::npos);
}

TEST(Listen, RefusesBadAddresses) {
  for (const char* address : {"", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
                              "127.0.0.1:-1", "example.org:80", "::1:80", "[::1:80"}) {
    const auto listener = ListenTcp(address);
    ASSERT_FALSE(listener.has_value()) << address;
    EXPECT_EQ(listener.error().code(), ErrorCode::kInvalidArgument) << address;
  }
}

TEST(Listen, UnixSocketReplacesStaleFileOnly) {
  const std::string path = ::testing::TempDir() + "http_test.sock";
  ::unlink(path.c_str());
  {
    const auto first = ListenUnix(path, 0600);
    ASSERT_TRUE(first.has_value()) << first.error().message();
    EXPECT_EQ(ListenUnix(path, 0600).error().code(), ErrorCode::kConflict);
  }
  const auto again = ListenUnix(path, 0660);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660U);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace space::http
