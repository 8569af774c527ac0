// Pause, resume and kill, with fake VMs.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "catalog/json.h"
#include "node/test_host.h"

namespace space {
namespace {

using Strings = std::vector<std::string>;

ForkSpec Forks(int64_t count) { return {count, 60}; }

std::string InitField(TestHost& host, const std::string& id, const char* group, const char* name) {
  const json::value init = json::parse(host.Guest(id, "GET", "/seen-init"));
  return std::string(init.at(group).at(name).as_string());
}

TEST(Kill, LeavesOnlyTheTemplate) {
  TestHost host;
  host.Start();
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, host.Create())).has_value());
  const Strings before = host.Everything();
  const size_t descriptors = TestHost::Descriptors();
  for (int at = 0; at < 3; ++at) {
    ASSERT_TRUE(host.Run(host.node().Kill(host.team, host.Create())).has_value());
  }
  EXPECT_EQ(host.Everything(), before);
  EXPECT_TRUE(host.RunUntil([&] { return TestHost::Descriptors() <= descriptors; }, 2000));
}

TEST(Pause, KeepsMemoryDiskAndSettingsOverManyCycles) {
  TestHost host;
  host.Start();
  CreateSpec spec = host.Spec();
  spec.environment = {{"A", "b"}};
  spec.metadata = {{"who", "me"}};
  const SandboxRecord made = host.Run(host.node().Create(spec)).value();
  std::string disk;
  for (int cycle = 0; cycle < 20; ++cycle) {
    const std::string mark = std::to_string(cycle) + ",";
    host.Guest(made.id, "POST", "/memory", mark);
    host.Guest(made.id, "POST", "/disk", mark);
    disk += mark;
    const auto paused = host.Run(host.node().Pause(host.team, made.id, true));
    ASSERT_TRUE(paused.has_value()) << paused.error().message();
    EXPECT_EQ(host.StateOf(made.id), SandboxState::kPaused);
    EXPECT_EQ(host.Processes(), Strings());
    EXPECT_EQ(host.node().FindUsable(made.id), nullptr);
    const auto shown = host.node().FindShown(host.team, made.id);
    EXPECT_EQ(ShownAs(shown->state), ShownState::kPaused);
    const auto resumed = host.Run(host.node().Resume(host.team, made.id, {100}));
    ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
    EXPECT_FALSE(resumed->was_running);
    EXPECT_EQ(resumed->record.envd_token, made.envd_token);
    EXPECT_EQ(resumed->record.started_at, made.started_at);
    EXPECT_EQ(host.Guest(made.id, "GET", "/memory"), mark);
    ASSERT_EQ(host.Guest(made.id, "GET", "/disk"), disk);
    EXPECT_EQ(host.Guest(made.id, "GET", "/frozen"), "no");
  }
  EXPECT_EQ(InitField(host, made.id, "envVars", "A"), "b");
  EXPECT_EQ(host.node().FindRunning(host.team, made.id)->metadata, spec.metadata);
  EXPECT_TRUE(host.catalog().snapshots().OfKind(SnapshotKind::kPause)->empty());
}

TEST(Pause, WithoutMemoryBootsAnew) {
  TestHost host;
  host.Start();
  CreateSpec spec = host.Spec();
  spec.environment = {{"A", "b"}};
  const std::string id = host.Run(host.node().Create(spec)).value().id;
  host.Guest(id, "POST", "/memory", "gone");
  host.Guest(id, "POST", "/disk", "stays");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, false)).has_value());
  const auto resumed = host.Run(host.node().Resume(host.team, id, {100}));
  ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "");
  EXPECT_EQ(host.Guest(id, "GET", "/disk"), "stays");
  EXPECT_EQ(InitField(host, id, "envVars", "A"), "b");
  // The same of a pause that has its memory: it is dropped with its layers.
  host.Guest(id, "POST", "/memory", "dropped");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {100, false})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "");
  EXPECT_EQ(host.Guest(id, "GET", "/disk"), "stays");
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
  const auto layers = host.catalog().layers().List().value();
  EXPECT_TRUE(std::none_of(layers.begin(), layers.end(),
                           [&](const LayerRecord& layer) { return layer.team_id == host.team; }));
}

TEST(Pause, ParallelOnesJoinAndASecondIsAConflict) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/fake/word", "slowsnapshot");
  std::vector<std::shared_ptr<std::optional<Result<void>>>> pauses;
  for (int at = 0; at < 5; ++at) {
    pauses.push_back(host.Begin(host.node().Pause(host.team, id, true)));
  }
  ASSERT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kPausing; }));
  EXPECT_EQ(ShownAs(host.node().FindShown(host.team, id)->state), ShownState::kPaused);
  EXPECT_FALSE(host.node().SetTimeout(host.team, id, 5).has_value());
  ASSERT_TRUE(host.RunUntil([&] {
    return std::all_of(pauses.begin(), pauses.end(), [](auto& one) { return one->has_value(); });
  }));
  for (const auto& pause : pauses) {
    EXPECT_TRUE((*pause)->has_value()) << (*pause)->error().message();
  }
  EXPECT_EQ(host.Run(host.node().Pause(host.team, id, true)).error().code(), ErrorCode::kConflict);
  EXPECT_EQ(host.Run(host.node().Pause(host.other_team, id, true)).error().code(),
            ErrorCode::kNotFound);
}

TEST(Pause, ThatFailsLetsTheGuestGoOn) {
  for (const char* word : {"badfreeze", "nosnapshot", "halfsnapshot"}) {
    TestHost host;
    host.Start();
    const std::string id = host.Create();
    host.Guest(id, "POST", "/disk", "a");
    host.Guest(id, "POST", "/fake/word", word);
    const auto paused = host.Run(host.node().Pause(host.team, id, true));
    ASSERT_FALSE(paused.has_value()) << word;
    EXPECT_EQ(host.StateOf(id), SandboxState::kRunning) << word;
    EXPECT_EQ(host.Guest(id, "GET", "/frozen"), "no") << word;
    host.Guest(id, "POST", "/disk", "b");
    EXPECT_EQ(host.Guest(id, "GET", "/disk"), "ab") << word;
    // Still watched by its clock.
    ASSERT_TRUE(host.node().SetTimeout(host.team, id, 0).has_value());
    EXPECT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kDead; }, 3000));
    EXPECT_EQ(host.Processes(), Strings()) << word;
  }
}

TEST(Pause, OfAGuestThatRefusesEverythingKeepsItsVm) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/memory", "mine");
  host.Guest(id, "POST", "/fake/word", "badfreeze");
  host.Guest(id, "POST", "/fake/word", "badthaw");
  ASSERT_FALSE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  EXPECT_EQ(host.StateOf(id), SandboxState::kRunning);
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "mine");
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
  EXPECT_EQ(host.Processes(), Strings());
}

TEST(Pause, OfAVmThatDiesBuriesIt) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  const Strings before = host.LayerFiles();
  host.Guest(id, "POST", "/fake/word", "diesnapshot");
  EXPECT_FALSE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  EXPECT_EQ(host.StateOf(id), SandboxState::kDead);
  EXPECT_EQ(host.Processes(), Strings());
  EXPECT_EQ(host.LayerFiles().size(), before.size() - 1);  // its top
}

TEST(Resume, IsTheSameMachineAndAForkAnother) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {100})).has_value());
  const json::value init = json::parse(host.Guest(id, "GET", "/seen-init"));
  EXPECT_FALSE(init.at("restore").as_object().contains("machineId"));
  EXPECT_EQ(init.at("restore").at("entropy").as_string().size(), 88U);
  const auto forked = host.Run(host.node().Fork(host.team, id, Forks(1)));
  ASSERT_TRUE(forked.has_value() && forked->children[0].has_value());
  EXPECT_EQ(InitField(host, forked->children[0]->id, "restore", "machineId").size(), 32U);
}

TEST(Resume, ParallelOnesShareOneRestore) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  std::vector<std::shared_ptr<std::optional<Result<ResumeOutcome>>>> resumes;
  for (int at = 0; at < 6; ++at) {
    resumes.push_back(host.Begin(host.node().Resume(host.team, id, {100})));
  }
  ASSERT_TRUE(host.RunUntil([&] {
    return std::all_of(resumes.begin(), resumes.end(), [](auto& one) { return one->has_value(); });
  }));
  for (const auto& resume : resumes) {
    EXPECT_TRUE((*resume)->has_value()) << (*resume)->error().message();
  }
  EXPECT_EQ(host.Processes().size(), 1U);
  const auto running = host.Run(host.node().Resume(host.team, id, {1}));
  EXPECT_TRUE(running->was_running);
  EXPECT_GT(running->record.end_at, Node::Now() + 90 * kMicrosPerSecond);  // never shortened
  EXPECT_EQ(host.Run(host.node().Resume(host.team, id, {1, true, true})).error().code(),
            ErrorCode::kConflict);
}

TEST(Resume, ThatFailsLeavesItPausedAndCanBeTriedAgain) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/memory", "kept");
  host.Guest(id, "POST", "/fake/word", "badrestore");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  const Strings before = host.LayerFiles();
  for (int at = 0; at < 2; ++at) {
    const auto refused = host.Run(host.node().Resume(host.team, id, {100}));
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message().find("no entropy"), std::string::npos);
    EXPECT_EQ(host.StateOf(id), SandboxState::kPaused);
    EXPECT_EQ(host.Processes(), Strings());
    EXPECT_EQ(host.LayerFiles(), before);
  }
  // Mend it: the words are in the state's first line.
  const std::string snapshot = host.catalog().sandboxes().Find(id).value()->snapshot_id;
  const std::string path = host.config.data_dir + "/layers/" + snapshot + ".state";
  ::chmod(path.c_str(), 0600);
  ASSERT_TRUE(WriteFileAtomically(path, "\nkept\n2\n").has_value());
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {100})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "kept");
}

TEST(Resume, NamesTheLayerThatIsMissing) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  const std::string snapshot = host.catalog().sandboxes().Find(id).value()->snapshot_id;
  const auto chains =
      host.catalog().layers().ChainsOf({LayerUser::Kind::kSnapshot, snapshot}).value();
  const std::string lost = chains.at("memory").back();
  std::filesystem::remove(host.config.data_dir + "/layers/" + lost + ".layer");
  const auto refused = host.Run(host.node().Resume(host.team, id, {100}));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message().find(lost), std::string::npos) << refused.error().message();
  EXPECT_EQ(host.StateOf(id), SandboxState::kPaused);
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
}

TEST(Kill, OfAPausedOneDeletesItsSnapshotAndDuringASnapshotWaits) {
  TestHost host;
  host.Start();
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, host.Create())).has_value());
  const Strings before = host.Everything();
  const std::string paused = host.Create();
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, paused, true)).has_value());
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, paused)).has_value());
  EXPECT_EQ(host.Run(host.node().Kill(host.team, paused)).error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(host.Everything(), before);
  const std::string busy = host.Create();
  host.Guest(busy, "POST", "/fake/word", "slowsnapshot");
  const auto pause = host.Begin(host.node().Pause(host.team, busy, true));
  ASSERT_TRUE(host.RunUntil([&] { return host.StateOf(busy) == SandboxState::kPausing; }));
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, busy)).has_value());
  EXPECT_TRUE(host.RunUntil([&] { return pause->has_value(); }));
  EXPECT_EQ(host.Everything(), before);
}

TEST(AutoPause, AtItsEndItIsPausedAndTrafficWakesIt) {
  TestHost host;
  host.Start();
  CreateSpec spec = host.Spec();
  spec.auto_pause = true;
  spec.auto_resume = true;
  spec.timeout_seconds = 1;
  const std::string id = host.Run(host.node().Create(spec)).value().id;
  host.Guest(id, "POST", "/memory", "kept");
  ASSERT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kPaused; }, 4000));
  ASSERT_TRUE(host.node().FindWakeable(id).has_value());
  host.RunUntil([] { return false; }, 1);
  const auto woken = host.Run(host.node().Wake(id));
  ASSERT_NE(woken, nullptr);
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "kept");
  EXPECT_GT(woken->record.end_at, Node::Now() + 290 * kMicrosPerSecond);
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, false)).has_value());
  EXPECT_FALSE(host.node().FindWakeable(id).has_value());  // without memory nothing wakes it
}

CreateSpec PausedAtItsEnd(TestHost& host) {
  CreateSpec spec = host.Spec();
  spec.auto_pause = true;
  spec.timeout_seconds = 1;
  return spec;
}

TEST(AutoPause, NeedsNoConsentOfTheGuest) {
  TestHost host;
  host.Start();
  const std::string id = host.Run(host.node().Create(PausedAtItsEnd(host))).value().id;
  host.Guest(id, "POST", "/memory", "kept");
  host.Guest(id, "POST", "/fake/word", "badfreeze");
  ASSERT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kPaused; }, 4000));
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {100})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "kept");
}

TEST(AutoPause, ThatFailsIsTriedAgainLaterAndNotAtOnce) {
  TestHost host;
  host.Start();
  const std::string id = host.Run(host.node().Create(PausedAtItsEnd(host))).value().id;
  host.Guest(id, "POST", "/fake/word", "nosnapshot");
  const auto sandbox = host.node().FindUsable(id);
  ASSERT_NE(sandbox, nullptr);
  ASSERT_TRUE(host.RunUntil([&] { return sandbox->failed_auto_pauses == 1; }, 4000));
  EXPECT_FALSE(host.RunUntil([&] { return sandbox->failed_auto_pauses > 1; }, 500));
  EXPECT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kRunning; }, 1000));
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
}

}  // namespace
}  // namespace space
