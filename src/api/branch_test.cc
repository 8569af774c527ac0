// What the routes of pause, resume, fork and snapshots refuse, and in which order (E2B.md 2.6, 2.7;
// FC-03, FC-05); and who may wake a paused sandbox.
#include <set>

#include <gtest/gtest.h>

#include "api/proxy_access.h"
#include "api/test_node.h"

namespace space {
namespace {

constexpr const char* kUnknown = "ixxxxxxxxxxxxxxxxxx0";

std::string MessageOf(const TestResponse& response) {
  const json::value body = response.Json();
  EXPECT_EQ(body.at("code").as_int64(), response.status) << response.body;
  return std::string(body.at("message").as_string());
}

TEST(Timeouts, AreCheckedBeforeTheSandboxIsLookedUp) {
  TestNode node;
  for (const char* call : {"/connect", "/resume", "/fork"}) {
    const std::string path = std::string("/sandboxes/") + kUnknown + call;
    for (const char* value : {"0", "-1", "-3600", "1.5", "\"10\"", "2147483648", "true", "[]"}) {
      const auto refused = node.Api("POST", path, std::string("{\"timeout\":") + value + "}");
      EXPECT_EQ(refused.status, 400) << path << value << refused.body;
      EXPECT_NE(MessageOf(refused).find("imeout"), std::string::npos) << refused.body;
    }
    for (const char* fine : {"{}", "", "{\"timeout\":null}", "{\"timeout\":60,\"new\":1}"}) {
      EXPECT_EQ(node.Api("POST", path, fine).status, 404) << path << fine;
    }
    EXPECT_EQ(node.Api("POST", path, "[]").status, 400);
    EXPECT_EQ(node.Api("POST", std::string("/sandboxes/a-b-c") + call, "{}").status, 400);
  }
}

TEST(Pause, TakesAnyBodyThatIsAnObjectOrNothing) {
  TestNode node;
  const std::string path = std::string("/sandboxes/") + kUnknown + "/pause";
  for (const char* fine : {"", "{}", "{\"memory\":true}", "{\"memory\":false}"}) {
    EXPECT_EQ(node.Api("POST", path, fine).status, 404) << fine;
  }
  const auto refused = node.Api("POST", path, "{\"memory\":1}");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(MessageOf(refused).find("memory"), std::string::npos);
}

TEST(Fork, CountIsNamedWhenItIsWrong) {
  TestNode node;
  const std::string path = std::string("/sandboxes/") + kUnknown + "/fork";
  for (const char* value : {"0", "-1", "101", "1.5", "\"3\""}) {
    const auto refused = node.Api("POST", path, std::string("{\"count\":") + value + "}");
    EXPECT_EQ(refused.status, 400) << value;
    EXPECT_NE(MessageOf(refused).find("count"), std::string::npos);
  }
  EXPECT_EQ(node.Api("POST", path, "{\"count\":100}").status, 404);
}

TEST(Snapshots, UnknownOnesAndSourcesAre404) {
  TestNode node;
  EXPECT_EQ(node.Api("POST", std::string("/sandboxes/") + kUnknown + "/snapshots").status, 404);
  EXPECT_EQ(node.Api("GET", "/snapshots").body, "[]");
  EXPECT_EQ(node.Api("GET", "/snapshots?name=nothing%3Av1").body, "[]");
  EXPECT_EQ(node.Api("GET", "/snapshots?limit=0").status, 400);
  EXPECT_EQ(node.Api("DELETE", "/templates/default%2Fnothing%3Av1").status, 404);
  EXPECT_EQ(node.Api("DELETE", "/space/v1/snapshots/nothing").status, 404);
  EXPECT_EQ(node.Api("GET", "/space/v1/snapshots/default%2Fnothing").status, 404);
}

std::vector<std::string> IdsOf(const TestResponse& listing) {
  std::vector<std::string> ids;
  const json::value list = listing.Json();
  for (const json::value& one : list.as_array()) {
    ids.emplace_back(one.at("sandboxID").as_string());
  }
  return ids;
}

TEST(Pause, AnswersAreThoseOfTheTable) {
  TestNode node;
  const std::string id = node.Create(R"({"templateID":"base","metadata":{"a":"b"}})");
  const std::string path = "/sandboxes/" + id;
  const std::string token(node.Api("GET", path).Json().at("envdAccessToken").as_string());
  EXPECT_EQ(node.Api("POST", path + "/resume", "{}").status, 409);
  EXPECT_EQ(node.Api("POST", path + "/pause").status, 204);
  const auto again = node.Api("POST", path + "/pause", "{}");
  EXPECT_EQ(again.status, 409);
  EXPECT_EQ(again.Json().at("code").as_int64(), 409);
  EXPECT_EQ(node.Api("POST", path + "/fork", "{}").status, 409);
  EXPECT_EQ(node.Api("POST", path + "/timeout", R"({"timeout":60})").status, 404);
  EXPECT_EQ(node.Api("POST", path + "/refreshes", R"({"duration":60})").status, 404);
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 502);
  const json::value detail = node.Api("GET", path).Json();
  EXPECT_EQ(detail.at("state").as_string(), "paused");
  EXPECT_EQ(detail.at("envdAccessToken").as_string(), token);
  EXPECT_EQ(detail.at("metadata").at("a").as_string(), "b");
  const std::vector<std::string> just = {id};
  EXPECT_EQ(IdsOf(node.Api("GET", "/v2/sandboxes")), just);
  EXPECT_EQ(IdsOf(node.Api("GET", "/v2/sandboxes?state=paused")), just);
  EXPECT_TRUE(IdsOf(node.Api("GET", "/v2/sandboxes?state=running")).empty());
  EXPECT_TRUE(IdsOf(node.Api("GET", "/sandboxes")).empty());
  EXPECT_EQ(node.Api("GET", "/v2/sandboxes").headers.Find("X-Total-Running"), "0");
  EXPECT_EQ(node.Api("GET", "/space/v1/status").Json().at("sandboxes").at("paused").as_int64(), 1);
  const auto resumed = node.Api("POST", "/v2" + path + "/connect", "{}");
  EXPECT_EQ(resumed.status, 201) << resumed.body;
  EXPECT_EQ(resumed.Json().at("envdAccessToken").as_string(), token);
  EXPECT_EQ(node.Api("POST", path + "/connect", R"({"timeout":10})").status, 200);
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 204);
  EXPECT_EQ(node.Api("POST", path + "/pause", R"({"memory":false})").status, 204);
  EXPECT_EQ(node.Api("POST", path + "/resume", "{}").status, 201);
  EXPECT_EQ(node.Api("POST", path + "/pause").status, 204);
  EXPECT_EQ(node.Api("POST", path + "/connect", R"({"memory":false})").status, 201);
  EXPECT_EQ(node.Api("POST", path + "/pause").status, 204);
  EXPECT_EQ(node.Api("DELETE", path).status, 204);
  EXPECT_EQ(node.Api("DELETE", path).status, 404);
  EXPECT_EQ(node.Api("GET", path).status, 404);
}

TEST(Fork, CopiesHaveTheirOwnTokensAndTheNativeAnswerHasTimes) {
  TestNode node;
  const std::string id = node.Create();
  const std::string path = "/sandboxes/" + id;
  const auto forked = node.Api("POST", path + "/fork", R"({"count":2,"timeout":77})");
  ASSERT_EQ(forked.status, 201) << forked.body;
  const json::value results = forked.Json();
  ASSERT_EQ(results.as_array().size(), 2U);
  std::set<std::string> tokens = {
      std::string(node.Api("GET", path).Json().at("envdAccessToken").as_string())};
  for (const json::value& result : results.as_array()) {
    tokens.emplace(result.at("sandbox").at("envdAccessToken").as_string());
  }
  EXPECT_EQ(tokens.size(), 3U);
  const auto native = node.Api("POST", "/space/v1" + path + "/fork");
  ASSERT_EQ(native.status, 201) << native.body;
  EXPECT_EQ(native.Json().at("results").as_array().size(), 1U);
  EXPECT_TRUE(native.Json().at("timings").as_object().contains("pauseUs")) << native.body;
  EXPECT_EQ(IdsOf(node.Api("GET", "/sandboxes")).size(), 4U);
}

TEST(Snapshots, AreTemplatesThatAreKeptWhileTheyAreUsed) {
  TestNode node;
  const std::string id = node.Create();
  const auto made = node.Api("POST", "/sandboxes/" + id + "/snapshots", R"({"name":"Warm:V1"})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string snapshot(made.Json().at("snapshotID").as_string());
  EXPECT_EQ(snapshot, "default/warm:v1");
  EXPECT_EQ(made.Json().at("names").at(0).as_string(), "default/warm");
  const auto unnamed = node.Api("POST", "/sandboxes/" + id + "/snapshots");
  ASSERT_EQ(unnamed.status, 201) << unnamed.body;
  EXPECT_TRUE(unnamed.Json().at("snapshotID").as_string().ends_with(":default"));
  const auto count = [&](const std::string& query) {
    return node.Api("GET", "/snapshots?" + query).Json().as_array().size();
  };
  EXPECT_EQ(count("name=warm"), 1U);
  EXPECT_EQ(count("name=warm:default"), 0U);
  EXPECT_EQ(count("sandboxID=" + id), 2U);
  const auto page = node.Api("GET", "/snapshots?limit=1");
  const std::string next(page.headers.Find("X-Next-Token").value_or(""));
  const auto last = node.Api("GET", "/snapshots?limit=1&nextToken=" + next);
  EXPECT_EQ(last.Json().as_array().size(), 1U);
  EXPECT_NE(last.body, page.body);
  EXPECT_FALSE(last.headers.Find("X-Next-Token").has_value());
  const json::value native = node.Api("GET", "/space/v1/snapshots/default%2Fwarm%3Av1").Json();
  EXPECT_EQ(native.at("sandboxID").as_string(), id);
  EXPECT_TRUE(native.at("timings").as_object().contains("pauseUs"));
  const std::string user = node.Create("{\"templateID\":\"" + snapshot + "\"}");
  const auto refused = node.Api("DELETE", "/templates/default%2Fwarm%3Av1");
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(MessageOf(refused).find(user), std::string::npos) << refused.body;
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + user).status, 204);
  EXPECT_EQ(node.Api("DELETE", "/templates/default%2Fwarm%3Av1").status, 204);
  EXPECT_EQ(node.Api("DELETE", "/templates/default%2Fwarm%3Av1").status, 404);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/snapshots", R"({"name":"b:"})").status, 400);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/snapshots", R"({"name":"x/y"})").status, 400);
}

TEST(Wake, TrafficWithItsTokenResumesASandboxThatAsksForIt) {
  TestNode node;
  const auto made =
      node.Api("POST", "/v2/sandboxes",
               R"({"templateID":"base","autoPause":true,"autoResume":{"enabled":true}})");
  ASSERT_EQ(made.status, 201) << made.body;
  const std::string id(made.Json().at("sandboxID").as_string());
  const std::string token(made.Json().at("envdAccessToken").as_string());
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/pause").status, 204);
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 403);
  EXPECT_EQ(node.Api("GET", "/sandboxes/" + id).Json().at("state").as_string(), "paused");
  EXPECT_EQ(node.Guest(id, 49983, "GET", "/health", "", {{"X-Access-Token", token}}).status, 204);
  const json::value detail = node.Api("GET", "/sandboxes/" + id).Json();
  EXPECT_EQ(detail.at("state").as_string(), "running");
  EXPECT_EQ(detail.at("lifecycle").at("onTimeout").as_string(), "pause");
  EXPECT_EQ(detail.at("lifecycle").at("autoResume").as_bool(), true);
}

TEST(Wake, NeedsTheTokenOfASecuredEnvdAndNothingElsewhere) {
  SandboxRecord record;
  record.envd_token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
  const auto may = [&](uint16_t port, const std::string& target, const http::Headers& headers) {
    const http::RequestHead head{"GET", target, headers};
    return MayWake(record, {"i1", port, false}, head, 1000 * kMicrosPerSecond);
  };
  EXPECT_TRUE(may(8080, "/", {}));
  EXPECT_FALSE(may(49983, "/health", {}));
  EXPECT_FALSE(may(49983, "/health", {{"X-Access-Token", "wrong"}}));
  EXPECT_TRUE(may(49983, "/health", {{"X-Access-Token", record.envd_token}}));
  // The vector of E2B's own tests (E2B.md 1.7).
  const std::string file = "/files?path=hello.txt&username=user&signature=";
  const std::string signature = "v1_gUtH%2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
  EXPECT_TRUE(may(49983, file + signature, {}));
  EXPECT_FALSE(may(49983, file + "v1_gUtH", {}));
  EXPECT_FALSE(may(49983, file + signature + "&signature_expiration=2000", {}));
  EXPECT_FALSE(may(49983, "/other?path=hello.txt&username=user&signature=" + signature, {}));
  record.envd_token.clear();
  EXPECT_TRUE(may(49983, "/health", {}));
}

}  // namespace
}  // namespace space
