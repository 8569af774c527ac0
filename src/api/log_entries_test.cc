#include "api/log_entries.h"

#include <gtest/gtest.h>

#include "api/test_node.h"

namespace space {
namespace {

std::vector<std::string> Messages(const std::vector<LogEntry>& entries) {
  std::vector<std::string> messages;
  for (const LogEntry& entry : entries) {
    messages.push_back(entry.message);
  }
  return messages;
}

TEST(LogEntries, AreOfBothSourcesInOrderAndNothingOfTheGuestsIsBelieved) {
  SandboxLogs logs;
  logs.vmm =
      "{\"time\":\"2026-10-01T12:00:02.000Z\",\"level\":\"warn\",\"component\":\"space-vmm\","
      "\"event\":\"late\",\"pages\":7}\nnot json\n{\"time\":\"x\",\"level\":\"x\",\"event\":[]}\n";
  logs.serial =
      "before\n2026-10-01T12:00:01.500Z [0.1] boots\r\n\n\x1b[2J{\"level\":\"error\"}\xff\n";
  const auto entries = ReadLogEntries(logs, 1000);
  EXPECT_EQ(Messages(entries),
            (std::vector<std::string>{"before", "[0.1] boots", "?[2J{\"level\":\"error\"}?", "late",
                                      "not json", "[]"}));
  EXPECT_EQ(entries[0].at, 1000);
  EXPECT_EQ(entries[2].level, "info");
  EXPECT_EQ(entries[2].logger, "console");
  EXPECT_EQ(entries[3].level, "warn");
  EXPECT_EQ(entries[5].level, "info");
  EXPECT_EQ(entries[5].at, entries[3].at);
  EXPECT_EQ(
      json::serialize(LogLineJson(entries[3])),
      R"({"timestamp":"2026-10-01T12:00:02.000000Z","line":"{\"pages\":\"7\",\"level\":\"warn\",)"
      R"(\"logger\":\"space-vmm\",\"message\":\"late\"}"})");
}

TEST(LogEntries, AreServedInBothFormsAlsoOfTheDead) {
  TestNode node;
  const std::string id = node.Create();
  const auto logs = [&](const std::string& prefix, const std::string& query) {
    const TestResponse got = node.Api("GET", prefix + "/sandboxes/" + id + "/logs" + query);
    EXPECT_EQ(got.status, 200) << got.body;
    return got.Json().at("logs").as_array();
  };
  const auto has = [](const json::array& list, const char* text) {
    return json::serialize(list).find(text) != std::string::npos;
  };
  EXPECT_TRUE(has(logs("", ""), "sandbox_running"));
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_TRUE(has(logs("", ""), "sandbox_dead"));
  const json::array all = logs("/v2", "");
  EXPECT_TRUE(has(all, "sandbox_dead"));
  const json::array newest = logs("/v2", "?direction=backward&limit=1");
  ASSERT_EQ(newest.size(), 1U);
  EXPECT_EQ(newest[0], all.back());
  EXPECT_EQ(logs("/v2", "?search=sandbox_running").size(), 1U);
  EXPECT_TRUE(logs("/v2", "?level=error").empty());
  EXPECT_TRUE(logs("/v2", "?cursor=9223372036854775").empty());
  EXPECT_TRUE(logs("", "?start=9223372036854775").empty());
  for (const char* wrong : {"?start=x", "?limit=1001", "?limit=-1"}) {
    EXPECT_EQ(node.Api("GET", "/sandboxes/" + id + "/logs" + wrong).status, 400) << wrong;
  }
  for (const char* wrong : {"?direction=up", "?level=loud", "?cursor=9223372036854775807"}) {
    EXPECT_EQ(node.Api("GET", "/v2/sandboxes/" + id + "/logs" + wrong).status, 400) << wrong;
  }
  EXPECT_EQ(node.Api("GET", "/sandboxes/ixxxxxxxxxxxxxxxxxx0/logs").status, 404);
}

}  // namespace
}  // namespace space
