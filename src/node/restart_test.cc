// The pool, and what a restart of spaced finds in each state.
#include <signal.h>

#include <algorithm>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/units.h"
#include "catalog/json.h"
#include "node/test_host.h"

namespace space {
namespace {

using Strings = std::vector<std::string>;

void FillPool(TestHost& host, size_t count) {
  ASSERT_TRUE(host.RunUntil([&] { return host.node().pooled_count() == count; }))
      << host.node().pooled_count();
}

TEST(Pool, IsFilledAtTheStartAndGivesItsVms) {
  TestHost host;
  host.config.pool_size = 3;
  host.Start();
  FillPool(host, 3);
  EXPECT_EQ(host.node().live_count(), 0U);
  const auto made = host.Run(host.node().Create(host.Spec()));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->origin, "pooled");
  EXPECT_EQ(host.StateOf(made->id), SandboxState::kRunning);
  const json::value init = json::parse(host.Guest(made->id, "GET", "/seen-init"));
  EXPECT_EQ(init.at("envVars").at("E2B_SANDBOX_ID").as_string(), made->id);
  EXPECT_EQ(init.at("accessToken").as_string(), made->envd_token);
  // It was made unique in the pool.
  const json::object& restore = init.at("restore").as_object();
  EXPECT_FALSE(restore.at("hooks").as_bool());
  EXPECT_FALSE(restore.contains("machineId"));
  EXPECT_EQ(host.Guest(made->id, "GET", "/frozen"), "no");
  FillPool(host, 3);
  const PoolState state = host.node().pool_state();
  ASSERT_EQ(state.entries.size(), 1U);
  EXPECT_EQ(state.entries[0].ready, 3U);
  EXPECT_EQ(state.entries[0].pooled, 1U);
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, made->id)).has_value());
  EXPECT_EQ(host.Processes().size(), 3U);
}

TEST(Pool, EmptyOneFallsBackToRestoreAndOtherSizesHaveTheirOwn) {
  TestHost host;
  host.config.pool_size = 1;
  host.Start();
  FillPool(host, 1);
  std::vector<std::shared_ptr<std::optional<Result<SandboxRecord>>>> burst;
  for (int at = 0; at < 5; ++at) {
    burst.push_back(host.Begin(host.node().Create(host.Spec())));
  }
  ASSERT_TRUE(host.RunUntil([&] {
    return std::all_of(burst.begin(), burst.end(), [](auto& one) { return one->has_value(); });
  }));
  int pooled = 0;
  for (const auto& one : burst) {
    ASSERT_TRUE((*one)->has_value()) << (*one)->error().message();
    pooled += (**one)->origin == "pooled" ? 1 : 0;
  }
  EXPECT_EQ(pooled, 1);
  const auto larger = host.Run(host.node().Create(host.Spec("base@1c-128m")));
  ASSERT_TRUE(larger.has_value());
  EXPECT_EQ(larger->origin, "restored");
  FillPool(host, 2);
  EXPECT_EQ(host.Run(host.node().Create(host.Spec("base@1c-128m")))->origin, "pooled");
}

TEST(Pool, AVmThatFailsIsReplacedByOneOnDemand) {
  TestHost host;
  host.config.pool_size = 2;
  host.Start();
  FillPool(host, 2);
  // One dies while it waits: nobody is given it.
  const std::string first = host.Processes().front();
  ::kill(std::stoi(first.substr(8)), SIGKILL);
  FillPool(host, 1);
  EXPECT_EQ(host.Run(host.node().Create(host.Spec()))->origin, "pooled");
  FillPool(host, 2);
  // All die unseen: the create must not care.
  for (const std::string& process : host.Processes()) {
    ::kill(std::stoi(process.substr(8)), SIGKILL);
  }
  const auto made = host.Run(host.node().Create(host.Spec()));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  FillPool(host, 2);
}

TEST(Pool, IsBoundedDrainsWhenUnusedAndLeavesNothing) {
  TestHost host;
  host.config.pool_size = 4;
  host.config.pool_memory_bytes = 1;  // reached by the first
  host.config.pool_idle_time = std::chrono::seconds(1);
  host.Start();
  FillPool(host, 1);
  host.config.pool_memory_bytes = GiB(1);
  const auto made = host.Run(host.node().Create(host.Spec("base@1c-128m")));
  ASSERT_TRUE(made.has_value());
  FillPool(host, 8);
  FillPool(host, 4);  // the other size's are gone after a second; the default's stay
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, made->id)).has_value());
  EXPECT_TRUE(host.RunUntil([&] { return host.Processes().size() == 4; }));
  for (const PoolEntry& entry : host.node().pool_state().entries) {
    EXPECT_EQ(entry.state, entry.template_id.starts_with("base@1c-128m") ? "idle" : "ready");
  }
}

TEST(Pool, GoesWithTheDaemonAndOneThatWasLeftBehindIsEnded) {
  TestHost host;
  host.config.pool_size = 2;
  host.Start();
  FillPool(host, 2);
  const std::string stays = host.Run(host.node().Create(host.Spec()))->id;
  FillPool(host, 2);
  host.Stop();
  host.config.pool_size = 0;
  host.Start();
  EXPECT_EQ(host.Guest(stays, "GET", "/health"), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(host.config.run_dir + "/vm"), {}), 1);
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(host.config.data_dir + "/sandboxes"), {}),
      1);
}

TEST(Restart, PausedOnesAreThereAndResume) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/memory", "kept");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  host.Stop();
  host.Start();
  EXPECT_EQ(ShownAs(host.node().FindShown(host.team, id)->state), ShownState::kPaused);
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {60})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "kept");
}

TEST(Restart, WhilePausingOrSnapshottingTheGuestGoesOnWithTheRightDisk) {
  for (const bool is_pause : {true, false}) {
    TestHost host;
    host.Start();
    const std::string id = host.Create();
    host.Guest(id, "POST", "/disk", "a");
    host.Guest(id, "POST", "/fake/word", "slowsnapshot");
    const auto wanted = is_pause ? SandboxState::kPausing : SandboxState::kSnapshotting;
    const auto pause = is_pause ? host.Begin(host.node().Pause(host.team, id, true)) : nullptr;
    const auto snapshot = is_pause ? nullptr : host.Begin(host.node().Snapshot(host.team, id, ""));
    ASSERT_TRUE(host.RunUntil([&] {
      return host.StateOf(id) == wanted &&
             !host.catalog().sandboxes().Find(id).value()->next_top.empty();
    }));
    host.RunUntil([] { return false; }, 100);  // the VMM has it
    host.Stop();
    host.Start();
    EXPECT_EQ(host.StateOf(id), SandboxState::kRunning);
    EXPECT_EQ(host.Guest(id, "GET", "/frozen"), "no");
    host.Guest(id, "POST", "/disk", "b");
    EXPECT_EQ(host.Guest(id, "GET", "/disk"), "ab");
    // Its chain is the real one: what comes after a pause has all of it.
    ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
    ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {60})).has_value());
    EXPECT_EQ(host.Guest(id, "GET", "/disk"), "ab");
    SnapshotQuery query;
    query.team_id = host.team;
    EXPECT_TRUE(host.node().ListSnapshots(query)->snapshots.empty());
  }
}

TEST(Restart, ASnapshotThatTheVmmNeverGotChangesNothing) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  const Strings before = host.LayerFiles();
  host.Guest(id, "POST", "/disk", "a");
  SandboxRecord record = host.catalog().sandboxes().Find(id).value().value();
  LayerRecord top;
  top.id = std::string(32, 'f');
  top.team_id = host.team;
  ASSERT_TRUE(host.catalog().layers().Insert(top).has_value());
  host.Touch("data/layers/" + top.id + ".layer", 4096);
  record.next_top = top.id;
  ASSERT_TRUE(host.catalog().sandboxes().Move(record, SandboxState::kSnapshotting).has_value());
  host.Stop();
  host.Start();
  EXPECT_EQ(host.StateOf(id), SandboxState::kRunning);
  EXPECT_EQ(host.Guest(id, "GET", "/disk"), "a");
  EXPECT_EQ(host.LayerFiles(), before);
}

TEST(Restart, WhileResumingItIsPausedAgain) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/memory", "kept");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  const auto resume = host.Begin(host.node().Resume(host.team, id, {60}));
  ASSERT_TRUE(host.RunUntil(
      [&] { return host.StateOf(id) == SandboxState::kResuming && !host.Processes().empty(); }));
  host.Stop();
  host.Start();
  EXPECT_EQ(host.StateOf(id), SandboxState::kPaused);
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {60})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "kept");
}

TEST(Restart, ForkedOnesGoOnAndAreSnapshottedWithoutTheLostMemoryLayer) {
  TestHost host;
  host.Start();
  const std::string source = host.Create();
  host.Guest(source, "POST", "/memory", "kept");
  const std::string child =
      host.Run(host.node().Fork(host.team, source, {1, 60}))->children.at(0)->id;
  host.Stop();
  host.Start();
  EXPECT_EQ(host.Guest(child, "GET", "/memory"), "kept");
  // A fork of it cannot be given the memory layer that the old daemon held: it is written again.
  const auto forked = host.Run(host.node().Fork(host.team, child, {1, 60}));
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  ASSERT_TRUE(forked->children[0].has_value()) << forked->children[0].error().message();
  EXPECT_EQ(host.Guest(forked->children[0]->id, "GET", "/memory"), "kept");
  const auto chains = host.catalog()
                          .layers()
                          .ChainsOf({LayerUser::Kind::kSandbox, forked->children[0]->id})
                          .value();
  EXPECT_EQ(chains.at("memory").size(), 2U);  // the template's, and one with all above it
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, child, true)).has_value());
  host.Stop();
  host.Start();
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, child, {60})).has_value());
}

TEST(Restart, RemovesFilesThatNobodyOwnsAndPausedOnesWithoutTheirFiles) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  const std::string snapshot = host.catalog().sandboxes().Find(id).value()->snapshot_id;
  host.Stop();
  host.Touch("data/layers/half.layer", 10);
  host.Touch("data/layers/half.state", 10);
  std::filesystem::remove(host.config.data_dir + "/layers/" + snapshot + ".state");
  host.Start();
  const SandboxRecord lost = host.catalog().sandboxes().Find(id).value().value();
  EXPECT_EQ(lost.state, SandboxState::kDead);
  EXPECT_EQ(lost.death_reason, "snapshot_lost");
  for (const std::string& file : host.LayerFiles()) {
    EXPECT_EQ(file.find("half"), std::string::npos);
  }
  EXPECT_TRUE(host.catalog().snapshots().OfKind(SnapshotKind::kPause)->empty());
}

TEST(Layers, OfOneTeamAreNeverAnothersAndUsedOnesStay) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  const auto chains = host.catalog().layers().ChainsOf({LayerUser::Kind::kSandbox, id}).value();
  const std::string top = chains.at("root").back();
  const auto foreign = host.catalog().layers().SetChains({LayerUser::Kind::kSandbox, "ithief"},
                                                         host.other_team, {{"root", {top}}});
  ASSERT_FALSE(foreign.has_value());
  EXPECT_EQ(foreign.error().code(), ErrorCode::kPermissionDenied);
  const std::string shared = chains.at("memory").front();
  EXPECT_TRUE(
      host.catalog()
          .layers()
          .SetChains({LayerUser::Kind::kSandbox, "iguest"}, host.other_team, {{"memory", {shared}}})
          .has_value());
  const auto in_use = host.catalog().layers().Delete(shared);
  ASSERT_FALSE(in_use.has_value());
  EXPECT_EQ(in_use.error().code(), ErrorCode::kConflict);
  EXPECT_NE(in_use.error().message().find("sandbox iguest"), std::string::npos);
  EXPECT_NE(in_use.error().message().find("sandbox " + id), std::string::npos);
  EXPECT_NE(in_use.error().message().find("snapshot "), std::string::npos);
}

}  // namespace
}  // namespace space
