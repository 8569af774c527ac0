// API and node together, over HTTP, with fake VMs: the life of sandboxes from creation to burial.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "api/test_node.h"
#include "http/deadline.h"
#include "http/spawn.h"
#include "node/time_text.h"

namespace space {
namespace {

size_t OpenDescriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

json::value Inspect(TestNode& node, const std::string& id) {
  const TestResponse found = node.Api("GET", "/space/v1/sandboxes/" + id);
  EXPECT_EQ(found.status, 200) << found.body;
  return found.Json();
}

bool IsDead(TestNode& node, const std::string& id) {
  return Inspect(node, id).at("state").as_string() == "dead";
}

// A request whose body never comes: the status of the answer, and whether the connection ends.
asio::awaitable<void> SendHalf(TestNode& node, std::string target, std::string key,
                               std::pair<int, bool>& outcome) {
  auto stream = co_await http::ConnectTcp("127.0.0.1", node.port, 5000);
  http::ClientConnection connection(*std::move(stream));
  http::RequestHead head;
  head.method = "POST";
  head.target = std::move(target);
  head.headers = {{"Host", "127.0.0.1"}, {"X-API-Key", key}};
  [[maybe_unused]] const auto sent = co_await connection.Send(std::move(head), 10);
  const auto answer = co_await connection.ReadHead();
  outcome.first = answer ? answer->status : -1;
  outcome.second = answer && answer->headers.Find("Connection") == "close";
}

TEST(NodeLife, ABodyThatDoesNotComeIs408AndWithoutAKeyNothingIsRead) {
  TestNode node;
  node.Stop();
  node.config.body_timeout = std::chrono::milliseconds(50);
  node.Start();
  std::pair<int, bool> outcome;
  http::Spawn(node.running->io.get_executor(), SendHalf(node, "/v2/sandboxes", node.key, outcome),
              "half");
  ASSERT_TRUE(node.RunUntil([&] { return outcome.first != 0; }, 5000));
  EXPECT_EQ(outcome, std::pair(408, true));
  outcome = {};
  http::Spawn(node.running->io.get_executor(), SendHalf(node, "/v2/sandboxes", "no", outcome),
              "half");
  ASSERT_TRUE(node.RunUntil([&] { return outcome.first != 0; }, 5000));
  EXPECT_EQ(outcome.first, 401);
}

TEST(NodeLife, CreateAnswersWithARunningSandboxAndTheAgentHasItsSettings) {
  TestNode node;
  const TestResponse made = node.Api(
      "POST", "/v2/sandboxes",
      R"({"templateID":"base@1c-128m","metadata":{"a":"b"},"envVars":{"FOO":"bar"},"timeout":60})");
  ASSERT_EQ(made.status, 201) << made.body;
  const json::value sandbox = made.Json();
  EXPECT_EQ(sandbox.at("templateID").as_string(), "base");
  EXPECT_EQ(sandbox.at("envdVersion").as_string(), "0.6.13");
  EXPECT_TRUE(sandbox.at("domain").is_null());
  const std::string token(sandbox.at("envdAccessToken").as_string());
  const std::string id(sandbox.at("sandboxID").as_string());
  EXPECT_EQ(id.size(), 21U);

  const json::value init = node.Guest(id, 49983, "GET", "/seen-init").Json();
  EXPECT_EQ(init.at("accessToken").as_string(), token);
  EXPECT_EQ(init.at("envVars").at("FOO").as_string(), "bar");
  EXPECT_EQ(init.at("envVars").at("E2B_SANDBOX_ID").as_string(), id);
  EXPECT_EQ(init.at("defaultUser").as_string(), "user");
  EXPECT_TRUE(ParseTime(std::string_view(init.at("timestamp").as_string())).has_value());

  const json::value detail = node.Api("GET", "/sandboxes/" + id + "-00000000").Json();
  EXPECT_EQ(detail.at("cpuCount").as_int64(), 1);
  EXPECT_EQ(detail.at("memoryMB").as_int64(), 128);
  EXPECT_EQ(detail.at("state").as_string(), "running");
  EXPECT_EQ(detail.at("metadata").at("a").as_string(), "b");
  EXPECT_EQ(detail.at("envdAccessToken").as_string(), token);
  const Micros ttl = ParseTime(std::string_view(detail.at("endAt").as_string())).value() -
                     ParseTime(std::string_view(detail.at("startedAt").as_string())).value();
  EXPECT_EQ(ttl, 60'000'000);
}

TEST(NodeLife, V1CreateIsOpenUnlessAskedOtherwise) {
  TestNode node;
  const auto open = node.Api("POST", "/sandboxes", R"({"templateID":"base"})");
  ASSERT_EQ(open.status, 201);
  EXPECT_EQ(open.Json().as_object().if_contains("envdAccessToken"), nullptr);
  const auto secure = node.Api("POST", "/sandboxes", R"({"templateID":"base","secure":true})");
  ASSERT_EQ(secure.status, 201);
  EXPECT_NE(secure.Json().as_object().if_contains("envdAccessToken"), nullptr);
  const auto mixed = node.Api("POST", "/sandboxes",
                              R"({"templateID":"base","network":{"allowPublicTraffic":false}})");
  EXPECT_EQ(mixed.status, 400);
}

TEST(NodeLife, KillLeavesNothing) {
  TestNode node;
  node.Api("GET", "/space/v1/status");  // whatever is opened once is open now
  const size_t before = OpenDescriptors();
  std::vector<std::string> ids;
  for (int at = 0; at < 3; ++at) {
    ids.push_back(node.Create());
  }
  EXPECT_EQ(node.Api("GET", "/sandboxes").Json().as_array().size(), 3U);
  for (const std::string& id : ids) {
    EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + id).status, 204);
    const auto again = node.Api("DELETE", "/sandboxes/" + id);
    EXPECT_EQ(again.status, 404);
    EXPECT_EQ(again.Json().at("message").as_string(),
              "Sandbox \"" + id + "\" doesn't exist or you don't have access to it");
    EXPECT_EQ(again.Json().at("code").as_int64(), 404);
    EXPECT_EQ(node.Api("GET", "/sandboxes/" + id).status, 404);
    EXPECT_EQ(node.Guest(id, 49983, "GET", "/health").status, 502);
    EXPECT_EQ(Inspect(node, id).at("deathReason").as_string(), "killed");
  }
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
  EXPECT_EQ(node.Api("GET", "/sandboxes").Json().as_array().size(), 0U);
  EXPECT_TRUE(node.RunUntil([&] { return OpenDescriptors() <= before; }, 3000))
      << OpenDescriptors() << " " << before;
}

TEST(NodeLife, KillEndsAVmmThatDoesNotListen) {
  TestNode node;
  node.config.command_line = "fake=deaf";
  const std::string id = node.Create();
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + id).status, 204);
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

TEST(NodeLife, TimeoutEndsItAndCanBeMoved) {
  TestNode node;
  const std::string id = node.Create(R"({"templateID":"base","timeout":1})");
  const std::string moved = node.Create(R"({"templateID":"base","timeout":1})");
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + moved + "/timeout", R"({"timeout":100})").status, 204);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(node.RunUntil([&] { return node.running->node->live_count() == 1; }, 3000));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(2000));
  EXPECT_EQ(Inspect(node, id).at("deathReason").as_string(), "expired");
  EXPECT_EQ(node.Api("GET", "/sandboxes/" + moved).status, 200);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + moved + "/timeout", R"({"timeout":0})").status, 204);
  EXPECT_TRUE(node.RunUntil([&] { return node.running->node->live_count() == 0; }, 3000));
}

TEST(NodeLife, ConnectOnlyExtends) {
  TestNode node;
  const std::string id = node.Create(R"({"templateID":"base","timeout":600})");
  const auto end_of = [&] {
    return ParseTime(std::string_view(Inspect(node, id).at("endAt").as_string())).value();
  };
  const Micros before = end_of();
  const auto connected = node.Api("POST", "/v2/sandboxes/" + id + "/connect", "{}");
  ASSERT_EQ(connected.status, 200);
  EXPECT_EQ(connected.Json().at("sandboxID").as_string(), id);
  EXPECT_EQ(end_of(), before);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/connect", R"({"timeout":5000})").status, 200);
  EXPECT_GT(end_of(), before + 4'000'000'000);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/refreshes", R"({"duration":10})").status, 204);
  EXPECT_EQ(node.Api("POST", "/sandboxes/i0/connect", R"({"timeout":259200})").status, 400);
  EXPECT_EQ(node.Api("POST", "/sandboxes/i0/connect", "").status, 404);
}

TEST(NodeDeath, AVmmThatIsKilledIsDeadWithAReasonWithinASecond) {
  TestNode node;
  const std::string id = node.Create();
  const auto pid = static_cast<pid_t>(Inspect(node, id).at("vmmPid").as_int64());
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  EXPECT_TRUE(node.RunUntil([&] { return node.running->node->live_count() == 0; }, 1000));
  const json::value dead = Inspect(node, id);
  EXPECT_EQ(dead.at("state").as_string(), "dead");
  EXPECT_EQ(dead.at("deathReason").as_string(), "vmm_killed");
  EXPECT_EQ(dead.at("deathDetail").as_string(), "space-vmm ended by signal 9");
  EXPECT_EQ(node.Api("GET", "/sandboxes/" + id).status, 404);
  EXPECT_EQ(node.Api("GET", "/space/v1/sandboxes").Json().as_array().size(), 0U);
  EXPECT_EQ(node.Api("GET", "/space/v1/sandboxes?all=true").Json().as_array().size(), 1U);
  EXPECT_EQ(node.Api("GET", "/space/v1/sandboxes/" + id + "/logs").body, "fake guest boots\n");
  const std::string log = node.Api("GET", "/space/v1/sandboxes/" + id + "/logs?source=vmm").body;
  EXPECT_TRUE(log.starts_with("fake vmm starts\n")) << log;
  EXPECT_NE(log.find("\"event\":\"sandbox_dead\""), std::string::npos) << log;
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

TEST(NodeDeath, TheReasonThatTheVmmRecordedIsShown) {
  TestNode node;
  const std::string id = node.Create();
  node.Guest(id, 49983, "GET", "/fake/panic");
  EXPECT_TRUE(node.RunUntil([&] { return node.running->node->live_count() == 0; }, 1000));
  EXPECT_EQ(Inspect(node, id).at("deathReason").as_string(), "guest_panic");
  EXPECT_EQ(Inspect(node, id).at("deathDetail").as_string(), "attempted to kill init");
}

TEST(NodeCreate, FailuresNameTheirObjectAndLeaveNothing) {
  TestNode node;
  const auto failure = [&](const std::string& body) {
    return node.Api("POST", "/v2/sandboxes", body);
  };
  struct Case {
    const char* body;
    int status;
    const char* wanted;
  };
  for (const Case& c : std::initializer_list<Case>{
           {R"({})", 400, "validation error: templateID"},
           {R"([])", 400, "validation error: body"},
           {R"({"templateID":)", 400, "validation error: body"},
           {R"({"templateID":"nope"})", 404, "template 'nope' not found"},
           {R"({"templateID":"base:v9"})", 404, "tag 'v9' does not exist for template 'base'"},
           {R"({"templateID":"base@33c"})", 400, "cpuCount"},
           {R"({"templateID":"base","cpuCount":0})", 400, "cpuCount"},
           {R"({"templateID":"base","memoryMB":0})", 400, "memoryMB"},
           {R"({"templateID":"base","memoryMB":62})", 400, "memoryMB"},
           {R"({"templateID":"base","memoryMB":99999998})", 400, "more than this host has"},
           {R"({"templateID":"base","diskSizeMB":0})", 400, "diskSizeMB"},
           {R"({"templateID":"base","timeout":0})", 400, "Timeout must be greater than 0"},
           {R"({"templateID":"base","timeout":259200})", 400, "limits.max_timeout"},
           {R"({"templateID":"base","timeout":"x"})", 400, "validation error: timeout"},
           {R"({"templateID":"base","metadata":{"a":1}})", 400, "validation error: metadata"},
           {R"({"templateID":"base","envVars":{"A=B":"c"}})", 400, "envVars"},
           {R"({"templateID":"base","timeout":-1})", 400, "Timeout must be greater than 0"},
           {R"({"templateID":"base","timeout":1.5})", 400, "validation error: timeout"},
           {R"({"templateID":"base","timeout":2147483648})", 400, "limits.max_timeout"},
           {R"({"templateID":"base","autoPause":1})", 400, "autoPause"},
           {R"({"templateID":"base","autoPauseMemory":false})", 400, "autoPauseMemory"},
           {R"({"templateID":"base","autoPause":true,"autoPauseMemory":false,)"
            R"("autoResume":{"enabled":true}})",
            400, "autoResume.enabled"},
           {R"({"templateID":"base","autoResume":{"enabled":"x"}})", 400, "autoResume.enabled"},
           {R"({"templateID":"base","network":{"denyOut":["x"]}})", 400, "network.denyOut"}}) {
    const TestResponse refused = failure(c.body);
    EXPECT_EQ(refused.status, c.status) << c.body << refused.body;
    const std::string message(refused.Json().at("message").as_string());
    EXPECT_NE(message.find(c.wanted), std::string::npos) << message;
  }
  const std::string body = R"({"templateID":"base"})";
  std::filesystem::rename(node.config.images_dir + "/base.img", node.folder + "/moved");
  const auto no_image = failure(body);
  EXPECT_EQ(no_image.status, 404);
  EXPECT_NE(no_image.body.find("base.img"), std::string::npos) << no_image.body;
  std::filesystem::rename(node.folder + "/moved", node.config.images_dir + "/base.img");
  node.config.min_free_disk_bytes = UINT64_MAX;
  EXPECT_EQ(failure(body).status, 503);
  EXPECT_NE(failure(body).body.find("no disk space"), std::string::npos);
  node.config.min_free_disk_bytes = 0;
  node.config.kvm_path = "/nonexistent/kvm";
  EXPECT_NE(failure(body).body.find("/nonexistent/kvm"), std::string::npos);
  node.config.kvm_path = "/dev/null";
  node.config.command_line = "fake=refuse";
  const auto no_elf = failure(body);
  EXPECT_EQ(no_elf.status, 400);
  EXPECT_NE(no_elf.body.find("kernel is not an ELF file"), std::string::npos) << no_elf.body;
  node.config.command_line = "fake=panic";
  const auto panic = failure(body);
  EXPECT_EQ(panic.status, 503);
  EXPECT_NE(panic.body.find("guest_panic no init found"), std::string::npos) << panic.body;
  EXPECT_NE(panic.body.find("fake guest boots"), std::string::npos) << panic.body;
  node.config.command_line = "fake=badinit";
  EXPECT_NE(failure(body).body.find("agent refused"), std::string::npos);
  node.config.command_line = "fake=silent";
  node.config.hello_timeout = std::chrono::milliseconds(200);
  EXPECT_EQ(failure(body).status, 504);
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
  EXPECT_EQ(node.running->node->live_count(), 0U);
}

TEST(NodeCreate, LimitOfSandboxesHolds) {
  TestNode node;
  node.config.max_sandboxes = 1;
  node.Create();
  const auto refused = node.Api("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("limits.max_sandboxes"), std::string::npos);
}

TEST(NodeCreate, LimitOfATeamIsItsOwnMatter) {
  TestNode node;
  node.config.team_sandboxes = 1;
  const std::string id = node.Create();
  const auto refused = node.Api("POST", "/v2/sandboxes", R"({"templateID":"base"})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.Json().at("code").as_int64(), 429);
  EXPECT_NE(refused.body.find("limits.team_sandboxes"), std::string::npos);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/fork", R"({"count":1})").status, 429);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/pause").status, 204);
  EXPECT_EQ(node.Api("POST", "/v2/sandboxes", R"({"templateID":"base"})").status, 201);
  EXPECT_EQ(node.Api("POST", "/sandboxes/" + id + "/connect", R"({"timeout":60})").status, 429);
}

TEST(NodeLimits, WhoAsksTooOftenIsToldWhenToComeAgain) {
  TestNode node;
  node.Stop();
  node.config.team_requests = 1;
  node.Start();
  TestResponse answer;
  for (int at = 0; at < 4 && answer.status != 429; ++at) {
    answer = node.Api("GET", "/sandboxes");
  }
  EXPECT_EQ(answer.status, 429) << answer.body;
  EXPECT_EQ(answer.headers.Find("Retry-After"), "1");
  EXPECT_EQ(node.Call("GET", "/health").status, 200);
  RateLimit limit(2);
  RateLimit::Clock::time_point now;
  for (int at = 0; at < 4; ++at) {
    EXPECT_EQ(limit.Take("a", now), 0);
  }
  EXPECT_EQ(limit.Take("a", now), 1);
  EXPECT_EQ(limit.Take("b", now), 0);
  now += std::chrono::milliseconds(500);
  EXPECT_EQ(limit.Take("a", now), 0);
  EXPECT_EQ(limit.Take("a", now), 1);
  RateLimit none(0);
  EXPECT_EQ(none.Take("a", now), 0);
}

TEST(NodeAdopt, ARestartedDaemonGoesOnWithWhatRuns) {
  TestNode node;
  const std::string stays = node.Create(R"({"templateID":"base","metadata":{"who":"stays"}})");
  const std::string dies = node.Create();
  const std::string panics = node.Create();
  const auto pid = static_cast<pid_t>(Inspect(node, dies).at("vmmPid").as_int64());
  const json::value before = node.Api("GET", "/sandboxes/" + stays).Json();
  // A stream that the daemon's end cuts; the VM must not mind.
  node.Stop();
  ::kill(pid, SIGKILL);
  std::filesystem::create_directories(node.config.data_dir + "/sandboxes/istranger");
  node.Start();
  EXPECT_EQ(node.Api("GET", "/sandboxes/" + stays).Json(), before);
  EXPECT_EQ(node.Guest(stays, 49983, "GET", "/health").status, 204);
  EXPECT_EQ(node.Api("GET", "/sandboxes").Json().as_array().size(), 2U);
  EXPECT_TRUE(IsDead(node, dies));
  // "vmm_died" after a real restart; here it was a child of this very process.
  EXPECT_EQ(Inspect(node, dies).at("deathReason").as_string(), "vmm_killed");
  EXPECT_FALSE(std::filesystem::exists(node.config.data_dir + "/sandboxes/istranger"));
  // Adopted ones are watched, killed and timed like any other.
  node.Guest(panics, 49983, "GET", "/fake/panic");
  EXPECT_TRUE(node.RunUntil([&] { return node.running->node->live_count() == 1; }, 1000));
  EXPECT_EQ(Inspect(node, panics).at("deathReason").as_string(), "guest_panic");
  EXPECT_EQ(node.Api("DELETE", "/sandboxes/" + stays).status, 204);
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

TEST(NodeAdopt, WhatTheRestartCutShortIsUndone) {
  TestNode node;
  const std::string id = node.Create();
  SandboxStore& store = node.running->catalog->sandboxes();
  SandboxRecord record = store.Find(id).value().value();
  SandboxRecord half = record;
  half.id = "ihalfmade";
  half.state = SandboxState::kCreating;
  half.vmm_pid = 0;
  ASSERT_TRUE(store.Insert(half).has_value());
  std::filesystem::create_directories(node.config.data_dir + "/sandboxes/ihalfmade");
  ASSERT_TRUE(store.Move(record, SandboxState::kStopping).has_value());
  node.Stop();
  node.Start();
  EXPECT_EQ(Inspect(node, "ihalfmade").at("deathReason").as_string(), "create_interrupted");
  EXPECT_EQ(Inspect(node, id).at("deathReason").as_string(), "killed");
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

TEST(NodeAdopt, AVmOfARowThatIsLostIsEnded) {
  TestNode node;
  const std::string id = node.Create();
  const auto pid = static_cast<pid_t>(Inspect(node, id).at("vmmPid").as_int64());
  node.Stop();
  std::filesystem::remove(node.config.data_dir + "/catalog.db");
  std::filesystem::remove(node.config.data_dir + "/catalog.db-wal");
  std::filesystem::remove(node.config.data_dir + "/catalog.db-shm");
  node.Start();
  EXPECT_NE(::kill(pid, 0), 0);  // ended and reaped
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

TEST(ApiKeys, AreNeededScopedAndRevocable) {
  TestNode node;
  for (const std::string& bad :
       {std::string(), std::string("e2b_00"), "e2b_" + std::string(40, '0')}) {
    const auto refused = node.Call("GET", "/sandboxes/!!", "", {{"X-Api-Key", bad}});
    EXPECT_EQ(refused.status, 401);
    EXPECT_TRUE(refused.Json().at("message").as_string().starts_with("Invalid API key"));
  }
  EXPECT_EQ(node.Call("GET", "/health").body, "Health check successful");
  const json::value made =
      node.Api("POST", "/space/v1/keys", R"({"name":"ci","scope":"use"})").Json();
  const std::string secret(made.at("key").as_string());
  const auto with = [&](const char* method, const char* target) {
    return node.Call(method, target, "", {{"X-API-KEY", secret}}).status;
  };
  EXPECT_EQ(with("GET", "/sandboxes"), 200);
  EXPECT_EQ(with("GET", "/space/v1/keys"), 403);
  EXPECT_EQ(with("POST", "/space/v1/shutdown"), 403);
  const std::string id(made.at("id").as_string());
  EXPECT_EQ(node.Api("GET", "/space/v1/keys").Json().as_array().size(), 2U);
  EXPECT_EQ(node.Api("GET", "/space/v1/keys").body.find(secret), std::string::npos);
  EXPECT_EQ(node.Api("DELETE", "/space/v1/keys/" + id).status, 204);
  EXPECT_EQ(with("GET", "/sandboxes"), 401);
  EXPECT_EQ(node.Api("POST", "/space/v1/keys", R"({"scope":"god"})").status, 400);
  EXPECT_EQ(node.Api("DELETE", "/space/v1/keys/00000000").status, 404);
}

TEST(ApiKeys, AnotherTeamSeesNothing) {
  TestNode node;
  const std::string id = node.Create();
  KeyStore& keys = node.running->catalog->keys();
  const Team other = keys.CreateTeam("other", 1).value();
  const std::string secret = keys.Create(other.id, "x", Scope::kAdmin, 1).value().secret;
  const auto with = [&](const char* method, const std::string& target) {
    return node.Call(method, target, "{\"timeout\":1}", {{"X-API-KEY", secret}});
  };
  EXPECT_EQ(with("GET", "/sandboxes/" + id).status, 404);
  EXPECT_EQ(with("DELETE", "/sandboxes/" + id).status, 404);
  EXPECT_EQ(with("POST", "/sandboxes/" + id + "/timeout").status, 404);
  EXPECT_EQ(with("POST", "/sandboxes/" + id + "/connect").status, 404);
  EXPECT_EQ(with("GET", "/space/v1/sandboxes/" + id).status, 404);
  EXPECT_EQ(with("GET", "/space/v1/sandboxes/" + id + "/logs").status, 404);
  EXPECT_EQ(with("GET", "/v2/sandboxes").Json().as_array().size(), 0U);
  EXPECT_EQ(with("GET", "/space/v1/sandboxes?all=true").Json().as_array().size(), 0U);
}

TEST(ApiList, PagesAndFilters) {
  TestNode node;
  for (int at = 0; at < 3; ++at) {
    node.Create(R"({"templateID":"base","metadata":{"n":")" + std::to_string(at) + "\"}}");
  }
  const auto first = node.Api("GET", "/v2/sandboxes?limit=2");
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(first.Json().as_array().size(), 2U);
  EXPECT_EQ(first.headers.Find("X-Total-Running"), "3");
  const std::string token(first.headers.Find("X-Next-Token").value());
  const auto second = node.Api("GET", "/v2/sandboxes?limit=2&nextToken=" + token);
  EXPECT_EQ(second.Json().as_array().size(), 1U);
  EXPECT_FALSE(second.headers.Find("X-Next-Token").has_value());
  EXPECT_EQ(second.Json().at(0).at("metadata").at("n").as_string(), "0");
  EXPECT_EQ(node.Api("GET", "/v2/sandboxes?metadata=n%3D1").Json().as_array().size(), 1U);
  EXPECT_EQ(node.Api("GET", "/sandboxes?metadata=n%3D1").Json().as_array().size(), 1U);
  EXPECT_EQ(node.Api("GET", "/v2/sandboxes?state=paused").Json().as_array().size(), 0U);
  EXPECT_EQ(node.Api("GET", "/v2/sandboxes?template=other").Json().as_array().size(), 0U);
  EXPECT_EQ(node.Api("GET", "/v2/sandboxes?limit=0").status, 400);
}

TEST(ApiErrors, UnknownRoutesAndMethodsAnswerInJson) {
  TestNode node;
  const auto unknown = node.Api("GET", "/v9/things");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.Json().at("code").as_int64(), 404);
  EXPECT_NE(unknown.body.find("2.51"), std::string::npos);
  EXPECT_EQ(node.Api("PUT", "/sandboxes").status, 405);
  EXPECT_EQ(node.Api("GET", "/sandboxes/a-b-c").Json().at("message").as_string(),
            "Invalid sandbox ID");
  EXPECT_EQ(node.Api("POST", "/v2/sandboxes", std::string(2 << 20, ' ')).status, 413);
  EXPECT_EQ(node.Api("POST", "/v2/sandboxes", std::string(100'000, '[')).status, 400);
}

TEST(ApiNode, StatusConfigAndShutdown) {
  TestNode node;
  const std::string id = node.Create();
  const json::value status = node.Api("GET", "/space/v1/status").Json();
  EXPECT_EQ(status.at("sandboxes").at("running").as_int64(), 1);
  EXPECT_TRUE(status.at("kvm").at("accessible").as_bool());
  EXPECT_NE(node.Api("GET", "/space/v1/config").body.find("max_sandboxes = 1000"),
            std::string::npos);
  EXPECT_EQ(node.Api("POST", "/space/v1/shutdown?kill=yes").status, 400);
  const auto down = node.Api("POST", "/space/v1/shutdown?kill=true");
  EXPECT_EQ(down.status, 200);
  EXPECT_EQ(down.Json().at("liveOnNode").as_int64(), 0);
  EXPECT_EQ(node.Leftovers(), std::vector<std::string>());
}

}  // namespace
}  // namespace space
