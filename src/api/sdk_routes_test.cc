// Routes that E2B's clients use beside the life of sandboxes, over HTTP, with fake VMs.
#include <gtest/gtest.h>

#include "api/template_json.h"
#include "api/test_node.h"

namespace space {
namespace {

class SdkRoutes : public testing::Test {
 protected:
  // Restarted with these settings: the node reads them at its start.
  void SampleOften() {
    node_.Stop();
    node_.config.metrics_interval = std::chrono::milliseconds(20);
    node_.Start();
  }
  json::array Metrics(const std::string& id, const std::string& query = "") {
    const TestResponse got = node_.Api("GET", "/sandboxes/" + id + "/metrics" + query);
    EXPECT_EQ(got.status, 200) << got.body;
    return got.Json().as_array();
  }

  TestNode node_;
};

TEST_F(SdkRoutes, MetricsAreSampledAndKeptAfterDeath) {
  SampleOften();
  const std::string id = node_.Create();
  ASSERT_TRUE(
      node_.RunUntil([&] { return node_.running->catalog->metrics().Newest(id)->has_value(); }));
  const json::array points = Metrics(id);
  ASSERT_FALSE(points.empty());
  const json::object& point = points.front().as_object();
  EXPECT_EQ(point.at("cpuCount").as_int64(), 2);
  EXPECT_DOUBLE_EQ(point.at("cpuUsedPct").as_double(), 12.5);
  EXPECT_EQ(point.at("memTotal").as_int64(), 4096);
  EXPECT_EQ(point.at("memUsed").as_int64(), 1024);
  EXPECT_EQ(point.at("memCache").as_int64(), 512);
  EXPECT_EQ(point.at("diskUsed").as_int64(), 7);
  EXPECT_EQ(point.at("diskTotal").as_int64(), 9);
  const int64_t at = point.at("timestampUnix").as_int64();
  EXPECT_TRUE(Metrics(id, "?start=1&end=2").empty());
  EXPECT_FALSE(Metrics(id, "?start=" + std::to_string(at) + "&end=" + std::to_string(at)).empty());
  const TestResponse many =
      node_.Api("GET", "/sandboxes/metrics?sandbox_ids=" + id + ",inothere-00000000");
  ASSERT_EQ(many.status, 200) << many.body;
  const json::value body = many.Json();
  EXPECT_EQ(body.at("sandboxes").as_object().size(), 1U);
  EXPECT_EQ(body.at("sandboxes").at(id).at("memUsed").as_int64(), 1024);

  ASSERT_EQ(node_.Api("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_FALSE(Metrics(id).empty());
}

TEST_F(SdkRoutes, WhatAGuestSaysOfItselfIsKeptWithinBounds) {
  SampleOften();
  const std::string id = node_.Create();
  ASSERT_EQ(node_.Guest(id, 49983, "POST", "/fake/word", "boasts").status, 200);
  const auto newest = [&] { return node_.running->catalog->metrics().Newest(id).value(); };
  ASSERT_TRUE(node_.RunUntil([&] { return newest() && newest()->cpu_count == 0; }));
  EXPECT_EQ(newest()->cpu_used_percent, 100);
  EXPECT_EQ(newest()->mem_total, 0);
  EXPECT_EQ(newest()->mem_used, int64_t{1} << 50);
  EXPECT_EQ(newest()->disk_used, 0);
}

TEST_F(SdkRoutes, WrongMetricsQueriesNameTheField) {
  const std::string id = node_.Create();
  for (const auto& [target, field] :
       {std::pair(std::string("/sandboxes/") + id + "/metrics?start=x", "start"),
        std::pair(std::string("/sandboxes/") + id + "/metrics?end=-1", "end"),
        std::pair(std::string("/sandboxes/") + id + "/metrics?start=9223372036854775807", "start"),
        std::pair(std::string("/sandboxes/") + id + "/metrics?start=2&end=1", "start"),
        std::pair(std::string("/sandboxes/metrics"), "sandbox_ids")}) {
    const TestResponse refused = node_.Api("GET", target);
    EXPECT_EQ(refused.status, 400) << target;
    EXPECT_NE(refused.body.find(field), std::string::npos) << refused.body;
  }
  EXPECT_EQ(node_.Api("GET", "/sandboxes/inothere/metrics").status, 404);
  EXPECT_EQ(node_.Call("GET", "/sandboxes/" + id + "/metrics").status, 401);
}

TEST_F(SdkRoutes, TemplatesAreTheOperatorsAndTheTeamsSnapshots) {
  const std::string id = node_.Create();
  ASSERT_EQ(node_.Api("POST", "/sandboxes/" + id + "/snapshots", R"({"name":"mine:v1"})").status,
            201);
  const json::array all = node_.Api("GET", "/templates").Json().as_array();
  ASSERT_EQ(all.size(), 2U);
  const json::object& mine = all[0].as_object();
  EXPECT_EQ(mine.at("names").as_array().at(0).as_string(), "default/mine");
  EXPECT_FALSE(mine.at("public").as_bool());
  const json::object& base = all[1].as_object();
  EXPECT_EQ(base.at("templateID").as_string(), "base");
  EXPECT_TRUE(base.at("public").as_bool());
  EXPECT_EQ(base.at("spawnCount").as_int64(), 1);
  EXPECT_TRUE(base.at("lastSpawnedAt").is_string());
  EXPECT_EQ(base.at("buildID").as_string().size(), 36U);
  EXPECT_EQ(base.at("buildStatus").as_string(), "ready");

  const TestResponse page = node_.Api("GET", "/v2/templates?limit=1");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.Json().as_array().size(), 1U);
  const auto next = page.headers.Find("X-Next-Token");
  ASSERT_TRUE(next.has_value());
  const TestResponse rest =
      node_.Api("GET", "/v2/templates?limit=1&nextToken=" + std::string(*next));
  EXPECT_EQ(rest.Json().as_array().at(0).at("templateID").as_string(), "base");
  EXPECT_FALSE(rest.headers.Find("X-Next-Token").has_value());

  const json::value found = node_.Api("GET", "/templates/mine").Json();
  EXPECT_EQ(found.at("builds").as_array().size(), 1U);
  const std::string template_id(found.at("templateID").as_string());
  EXPECT_EQ(node_.Api("GET", "/templates/" + template_id).status, 200);
  EXPECT_EQ(node_.Api("GET", "/templates/default%2Fmine/tags").Json().at(0).at("tag").as_string(),
            "v1");
}

TEST_F(SdkRoutes, AliasesSayWhetherATemplateIsThere) {
  const TestResponse base = node_.Api("GET", "/templates/aliases/Base");
  EXPECT_EQ(base.status, 200) << base.body;
  EXPECT_EQ(base.Json().at("templateID").as_string(), "base");
  EXPECT_EQ(node_.Api("GET", "/templates/aliases/none").status, 404);
  EXPECT_EQ(node_.Api("GET", "/templates/none").status, 404);
}

TEST_F(SdkRoutes, WhatIsNotThereYetSaysSo) {
  for (const auto& [method, target] :
       {std::pair("POST", "/v3/templates"), std::pair("POST", "/v2/templates/base/builds/b"),
        std::pair("GET", "/volumes"), std::pair("POST", "/secrets"),
        std::pair("PUT", "/sandboxes/iabc/network")}) {
    const TestResponse refused = node_.Api(method, target, "{}");
    EXPECT_EQ(refused.status, 501) << target;
    EXPECT_EQ(refused.Json().at("code").as_int64(), 501) << target;
    EXPECT_EQ(node_.Call(method, target, "{}").status, 401) << target;
  }
}

// Of npm e2b's own test (E2B.md 1.7): token, path and user give this signature.
TEST_F(SdkRoutes, ASignedFileUrlOfThePlainPortFindsItsSandbox) {
  const std::string other = node_.Create();
  const std::string id = node_.Create();
  const std::string target =
      "/files?path=hello.txt&username=user&signature=v1_gUtH%"
      "2Fs9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E";
  EXPECT_EQ(node_.Call("GET", target).status, 401);
  EXPECT_EQ(node_.Call("GET", target).Json().at("message").as_string(), "invalid signature");
  const auto live = node_.running->node->FindUsable(id);
  ASSERT_NE(live, nullptr);
  live->record.envd_token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
  const TestResponse reached = node_.Call("GET", target);
  EXPECT_EQ(reached.status, 404);
  EXPECT_TRUE(reached.body.starts_with("agent has no /files?")) << reached.body;
  EXPECT_EQ(node_.Call("POST", target).status, 401);  // signed for reading alone
  EXPECT_EQ(node_.Call("GET", target + "&signature_expiration=1").status, 401);
  EXPECT_EQ(node_.Call("GET", "/files?path=hello.txt").status, 404);
}

TEST(TemplateJson, BuildIdsAreUuids) {
  EXPECT_EQ(UuidOf("0123456789abcdef0123456789abcdef"), "01234567-89ab-cdef-0123-456789abcdef");
  EXPECT_EQ(UuidOf(""), "00000000-0000-0000-0000-000000000000");
  EXPECT_EQ(UuidOf(std::string(64, 'f')), "ffffffff-ffff-ffff-ffff-ffffffffffff");
}

}  // namespace
}  // namespace space
