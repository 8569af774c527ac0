#include "http/server.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "http/client.h"
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

asio::awaitable<Result<SimpleResponse>> CallOnce(uint16_t port, RequestHead head,
                                                 std::string body) {
  SPACE_CO_TRY(Stream stream, co_await ConnectTcp("127.0.0.1", port, 5000), "connect");
  ClientConnection connection(std::move(stream));
  co_return co_await Call(connection, std::move(head), std::move(body), 1 << 20, 5000);
}

TEST(Client, CallReturnsHeadAndBody) {
  TestServer server(Echo);
  RequestHead head{"POST", "/x?y=1", {}};
  const auto response = server.Run(CallOnce(server.port(), std::move(head), "hello"));
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->head.status, 200);
  EXPECT_EQ(response->body, "POST /x?y=1 hello");
}

}  // namespace
}  // namespace space::http
