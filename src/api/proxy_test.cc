#include <gtest/gtest.h>

#include "api/proxy_head.h"
#include "api/proxy_route.h"
#include "catalog/json.h"

namespace space {
namespace {

using Kind = ProxyDecision::Kind;

http::RequestHead Request(std::initializer_list<http::Header> headers) {
  http::RequestHead head;
  head.method = "GET";
  head.target = "/";
  head.headers = headers;
  return head;
}

TEST(ProxyRoute, HostLabelGoesFirstThenHeadersThenApi) {
  const auto by_host = DecideRoute(Request({{"Host", "8080-IABC-00000000.localhost:3000"},
                                            {"E2b-Sandbox-Id", "other"},
                                            {"E2b-Sandbox-Port", "1"}}));
  EXPECT_EQ(by_host.kind, Kind::kSandbox);
  EXPECT_EQ(by_host.target.sandbox_id, "iabc");
  EXPECT_EQ(by_host.target.port, 8080);
  EXPECT_TRUE(by_host.target.is_by_host);

  const auto by_header = DecideRoute(Request(
      {{"Host", "127.0.0.1:3000"}, {"e2b-sandbox-id", "iabc"}, {"E2B-SANDBOX-PORT", "49983"}}));
  EXPECT_EQ(by_header.kind, Kind::kSandbox);
  EXPECT_EQ(by_header.target.port, 49983);
  EXPECT_FALSE(by_header.target.is_by_host);

  for (const char* host : {"127.0.0.1:3000", "localhost:3000", "api.sbx.test", "a-b.sbx.test", "",
                           "3000-iabc", "-iabc.x"}) {
    EXPECT_EQ(DecideRoute(Request({{"Host", host}})).kind, Kind::kApi) << host;
  }
}

TEST(ProxyRoute, HalfOrBrokenAddressesAreRefused) {
  EXPECT_EQ(DecideRoute(Request({{"E2b-Sandbox-Id", "iabc"}})).kind, Kind::kBad);
  EXPECT_EQ(DecideRoute(Request({{"E2b-Sandbox-Port", "1"}})).kind, Kind::kBad);
  for (const char* port : {"0", "65536", "x", "", "-1", "80 "}) {
    EXPECT_EQ(DecideRoute(Request({{"E2b-Sandbox-Id", "iabc"}, {"E2b-Sandbox-Port", port}})).kind,
              Kind::kBad)
        << port;
  }
  for (const char* host : {"99999-iabc.x", "80-i_c.x", "80-a-b-c.x", "80-.x"}) {
    EXPECT_EQ(DecideRoute(Request({{"Host", host}})).kind, Kind::kBad) << host;
  }
}

TEST(ProxyRoute, InternalPathsAreFoundHoweverTheyAreWritten) {
  for (const char* path :
       {"/init", "/init?x=1", "//init", "/./init", "/a/../init", "/%69nit", "/init/", "/freeze",
        "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade", "/..//init"}) {
    EXPECT_TRUE(IsInternalPath(path)) << path;
  }
  for (const char* path : {"/", "/health", "/files?path=/init", "/initial", "/init/x", "/a%2Finit",
                           "/process.Process/Start"}) {
    EXPECT_FALSE(IsInternalPath(path)) << path;
  }
}

TEST(ProxyHead, HopByHopFieldsAndProxyTokenStayHere) {
  const auto head = HeadForGuest(Request({{"Host", "a"},
                                          {"Connection", "keep-alive, X-Hop"},
                                          {"X-Hop", "1"},
                                          {"TE", "trailers"},
                                          {"Keep-Alive", "5"},
                                          {"Authorization", "Basic cm9vdDo="},
                                          {"X-Access-Token", "t"},
                                          {"E2B-Traffic-Access-Token", "secret"},
                                          {"Upgrade", "h2c"}}),
                                 "", 80);
  for (const char* gone :
       {"Connection", "X-Hop", "TE", "Keep-Alive", "Upgrade", "E2B-Traffic-Access-Token"}) {
    EXPECT_FALSE(head.headers.Find(gone).has_value()) << gone;
  }
  EXPECT_EQ(head.headers.Find("Authorization"), "Basic cm9vdDo=");
  EXPECT_EQ(head.headers.Find("X-Access-Token"), "t");
  EXPECT_EQ(head.headers.Find("Host"), "a");
}

TEST(ProxyHead, UpgradeAndMaskedHost) {
  const auto head = HeadForGuest(
      Request({{"Host", "8080-i.x"}, {"Connection", "Upgrade"}, {"Upgrade", "websocket"}}),
      "localhost:${PORT}", 8080);
  EXPECT_EQ(head.headers.Find("Upgrade"), "websocket");
  EXPECT_EQ(head.headers.Find("Connection"), "Upgrade");
  EXPECT_EQ(head.headers.Find("Host"), "localhost:8080");
  EXPECT_EQ(head.headers.Find("X-Forwarded-Host"), "8080-i.x");
}

TEST(ProxyHead, GuestBytesOnASharedAddressAreNoPage) {
  const http::ResponseHead guest{200,
                                 {{"Content-Type", "text/html"},
                                  {"Content-Disposition", "inline; filename=a.html"},
                                  {"Content-Security-Policy", "default-src *"}}};
  const auto shared = HeadForClient(guest, false);
  EXPECT_EQ(shared.headers.Find("Content-Security-Policy"), "sandbox");
  EXPECT_EQ(shared.headers.Find("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(shared.headers.Find("Content-Disposition"), "attachment; filename=a.html");
  const auto own = HeadForClient(guest, true);
  EXPECT_EQ(own.headers.Find("Content-Security-Policy"), "default-src *");
  EXPECT_FALSE(own.headers.Find("X-Content-Type-Options").has_value());
}

TEST(ProxyHead, ProblemsAreWordedAsClientsExpect) {
  const ProxyTarget target{"iabc", 8080, true};
  const auto missing = AnswerProblem(ProxyProblem::kNotFound, target, Request({}));
  EXPECT_EQ(missing.head.status, 502);
  EXPECT_EQ(missing.body,
            R"({"sandboxId":"iabc","message":"The sandbox was not found","code":502})");
  const auto closed = AnswerProblem(ProxyProblem::kPortClosed, target, Request({}));
  EXPECT_EQ(closed.body, R"({"sandboxId":"iabc","message":"The sandbox is running but port is not)"
                         R"( open","port":8080,"code":502})");
  const auto token = AnswerProblem(ProxyProblem::kTokenMissing, target, Request({}));
  EXPECT_EQ(token.head.status, 403);
  EXPECT_EQ(AnswerProblem(ProxyProblem::kInternalPath, target, Request({})).head.status, 404);

  const auto page =
      AnswerProblem(ProxyProblem::kNotFound, target,
                    Request({{"User-Agent", "Mozilla/5.0"}, {"Accept", "text/html"}}));
  EXPECT_TRUE(page.body.starts_with("<html"));
  EXPECT_NE(page.body.find("Sandbox Not Found"), std::string::npos);
  const auto script =
      AnswerProblem(ProxyProblem::kNotFound, target,
                    Request({{"User-Agent", "Mozilla/5.0"}, {"Sec-Fetch-Mode", "cors"}}));
  EXPECT_TRUE(script.body.starts_with("{"));
}

TEST(ProxyHead, BodyLengthOf) {
  EXPECT_EQ(BodyLengthOf({{"Content-Length", "12"}}), 12U);
  EXPECT_EQ(BodyLengthOf({}), 0U);
  EXPECT_FALSE(BodyLengthOf({{"Transfer-Encoding", "chunked"}}).has_value());
}

}  // namespace
}  // namespace space
