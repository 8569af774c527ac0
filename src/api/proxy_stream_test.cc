// The proxy in front of fake guests: streams, cuts, upgrades, tokens.
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <gtest/gtest.h>

#include "api/test_node.h"
#include "http/deadline.h"
#include "http/spawn.h"

namespace space {
namespace {

http::RequestHead GuestHead(const std::string& id, const std::string& method,
                            const std::string& target) {
  http::RequestHead head;
  head.method = method;
  head.target = target;
  head.headers = {{"Host", "127.0.0.1"}, {"E2b-Sandbox-Id", id}, {"E2b-Sandbox-Port", "49983"}};
  return head;
}

TEST(Proxy, EnvdAndGuestPortsAreReachedByHeaderAndByHost) {
  TestNode node;
  const std::string id = node.Create();
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 204);
  const auto by_header = node.Guest(id, 8080, "GET", "/a%2Fb?c=d", "", {{"X-Mine", "1"}});
  ASSERT_EQ(by_header.status, 200);
  EXPECT_NE(by_header.body.find("GET /a%2Fb?c=d\n"), std::string::npos) << by_header.body;
  EXPECT_NE(by_header.body.find("X-Mine: 1\n"), std::string::npos);
  EXPECT_EQ(by_header.headers.Find("Content-Security-Policy"), "sandbox");
  EXPECT_EQ(by_header.headers.Find("Content-Disposition"), "attachment");
  const std::string host = "8080-" + id + ".localhost:3000";
  const auto by_host = node.Call("GET", "/", "", {{"Host", host}});
  ASSERT_EQ(by_host.status, 200);
  EXPECT_NE(by_host.body.find("Host: " + host + "\n"), std::string::npos) << by_host.body;
  EXPECT_FALSE(by_host.headers.Find("Content-Security-Policy").has_value());
}

TEST(Proxy, ProblemsAre502AsE2bWordsThem) {
  TestNode node;
  const std::string id = node.Create();
  const auto closed = node.Guest(id, 9, "GET", "/");
  EXPECT_EQ(closed.status, 502);
  EXPECT_EQ(closed.Json().at("message").as_string(), "The sandbox is running but port is not open");
  EXPECT_EQ(closed.Json().at("port").as_int64(), 9);
  const auto unknown = node.Guest("ixxxxxxxxxxxxxxxxxx0", 49983, "GET", "/health");
  EXPECT_EQ(unknown.status, 502);
  EXPECT_EQ(unknown.body, R"({"sandboxId":"ixxxxxxxxxxxxxxxxxx0","message":"The sandbox was not)"
                          R"( found","code":502})");
  const auto internal = node.Guest(id, 49983, "POST", "/init", "{}");
  EXPECT_EQ(internal.status, 404);
  EXPECT_EQ(internal.Json().at("path").as_string(), "/init");
  EXPECT_EQ(node.Call("GET", "/", "", {{"E2b-Sandbox-Id", id}}).status, 400);
}

TEST(Proxy, PrivateSandboxWantsItsTokenExceptForEnvd) {
  TestNode node;
  const auto made = node.Api("POST", "/v2/sandboxes",
                             R"({"templateID":"base","network":{"allowPublicTraffic":false,)"
                             R"("maskRequestHost":"localhost:${PORT}"}})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id(made.Json().at("sandboxID").as_string());
  const std::string token(made.Json().at("trafficAccessToken").as_string());
  EXPECT_EQ(node.Guest(id, 8080, "GET", "/").status, 403);
  EXPECT_EQ(node.Guest(id, 8080, "GET", "/", "", {{"E2B-Traffic-Access-Token", "x"}}).status, 403);
  const auto let_in = node.Guest(id, 8080, "GET", "/", "", {{"E2B-Traffic-Access-Token", token}});
  EXPECT_EQ(let_in.status, 200);
  EXPECT_EQ(let_in.body.find(token), std::string::npos);
  EXPECT_NE(let_in.body.find("Host: localhost:8080\n"), std::string::npos) << let_in.body;
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 204);
}

TEST(Proxy, LargeBodiesPassBothWays) {
  TestNode node;
  const std::string id = node.Create();
  std::string body(5 << 20, '\0');
  for (size_t at = 0; at < body.size(); ++at) {
    body[at] = static_cast<char>(at * 7 + at / 4096);
  }
  const auto echoed = node.Guest(id, 49983, "POST", "/echo", body);
  EXPECT_EQ(echoed.status, 200);
  EXPECT_TRUE(echoed.body == body) << echoed.body.size();
}

struct StreamState {
  std::string first;
  bool is_cut = false;
};

// Reads the first chunk of an endless response, then waits for what comes after.
asio::awaitable<void> FollowStream(uint16_t port, http::RequestHead head, StreamState& state) {
  auto stream = co_await http::ConnectTcp("127.0.0.1", port, 5000);
  http::ClientConnection connection(*std::move(stream));
  [[maybe_unused]] const auto sent = co_await connection.Send(std::move(head), 0);
  const auto answer = co_await connection.ReadHead();
  std::string chunk(100, '\0');
  const auto got = co_await connection.Read(chunk);
  if (answer && got) {
    state.first = chunk.substr(0, *got);
  }
  const auto after = co_await connection.Read(chunk);
  state.is_cut = !after.has_value();
}

TEST(Proxy, AStreamArrivesAtOnceAndIsCutByKill) {
  TestNode node;
  const std::string id = node.Create();
  StreamState state;
  http::Spawn(node.running->io.get_executor(),
              FollowStream(node.port, GuestHead(id, "GET", "/stream"), state), "follow");
  ASSERT_TRUE(node.RunUntil([&] { return !state.first.empty(); }));
  EXPECT_EQ(state.first, "first\n");
  EXPECT_FALSE(state.is_cut);
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_TRUE(node.RunUntil([&] { return state.is_cut; }, 1000));
}

TEST(Proxy, AStreamIsCutWhenTheVmDies) {
  TestNode node;
  const std::string id = node.Create();
  StreamState state;
  http::Spawn(node.running->io.get_executor(),
              FollowStream(node.port, GuestHead(id, "GET", "/stream"), state), "follow");
  ASSERT_TRUE(node.RunUntil([&] { return !state.first.empty(); }));
  node.Guest(id, 49983, "GET", "/fake/vanish");
  EXPECT_TRUE(node.RunUntil([&] { return state.is_cut; }, 1000));
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 502);
}

// Sends two words through an upgraded connection and gathers what comes back.
asio::awaitable<void> TalkUpgraded(uint16_t port, http::RequestHead head, std::string& heard,
                                   bool& is_over) {
  head.headers.Add("Connection", "Upgrade");
  head.headers.Add("Upgrade", "echo");
  auto stream = co_await http::ConnectTcp("127.0.0.1", port, 5000);
  http::ClientConnection connection(*std::move(stream));
  [[maybe_unused]] const auto sent = co_await connection.Send(std::move(head), 0);
  const auto answer = co_await connection.ReadHead();
  if (!answer || answer->status != 101) {
    heard = "no upgrade";
    is_over = true;
    co_return;
  }
  auto [raw, ahead] = std::move(connection).TakeStream();
  for (const std::string word : {"hello", "again"}) {
    co_await asio::async_write(raw, asio::buffer(word), http::kNoThrow);
    std::string back(word.size(), '\0');
    co_await asio::async_read(raw, asio::buffer(back), http::kNoThrow);
    heard += back;
  }
  char more = 0;
  const auto [error, got] = co_await asio::async_read(raw, asio::buffer(&more, 1), http::kNoThrow);
  is_over = error.failed();
}

TEST(Proxy, UpgradesPassThroughAndEndWithTheSandbox) {
  TestNode node;
  const std::string id = node.Create();
  std::string heard;
  bool is_over = false;
  http::Spawn(node.running->io.get_executor(),
              TalkUpgraded(node.port, GuestHead(id, "GET", "/upgrade-echo"), heard, is_over),
              "talk");
  ASSERT_TRUE(node.RunUntil([&] { return heard.size() == 10 || is_over; }));
  EXPECT_EQ(heard, "helloagain");
  EXPECT_FALSE(is_over);
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_TRUE(node.RunUntil([&] { return is_over; }, 1000));
}

TEST(Proxy, AnUpgradeThatNobodyAskedForIsNoAnswer) {
  TestNode node;
  const std::string id = node.Create();
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/upgrade-echo").status, 502);
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 204);
}

}  // namespace
}  // namespace space
