// Templates, snapshots and forks, with fake VMs.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

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

TEST(Template, ThatCannotBeBuiltIsNotListed) {
  TestHost host;
  host.config.command_line = "fake=badinit";
  host.Start();
  ASSERT_FALSE(host.Run(host.node().Create(host.Spec("base@1c-128m"))).has_value());
  EXPECT_TRUE(host.node().pool_state().entries.empty());
}

// What one guest does with its first request keeps nobody else waiting.
TEST(Template, HangingCreatesDoNotHoldUpOthers) {
  TestHost host;
  host.Start();
  const std::string source = host.Create();
  host.Guest(source, "POST", "/fake/word", "hanginit");
  const auto kept = host.Run(host.node().Snapshot(host.team, source, ""));
  ASSERT_TRUE(kept.has_value()) << kept.error().message();
  std::vector<std::shared_ptr<std::optional<Result<SandboxRecord>>>> hanging;
  for (int at = 0; at < 20; ++at) {
    hanging.push_back(host.Begin(host.node().Create(host.Spec(PublicSnapshotId(*kept)))));
  }
  EXPECT_FALSE(host.RunUntil([&] { return hanging[0]->has_value(); }, 100));
  const auto other = host.Begin(host.node().Create(host.Spec()));
  ASSERT_TRUE(host.RunUntil([&] { return other->has_value(); }, 2'000));
  EXPECT_TRUE((*other)->has_value()) << (*other)->error().message();
  EXPECT_TRUE(
      std::none_of(hanging.begin(), hanging.end(), [](auto& one) { return one->has_value(); }));
}

TEST(Template, IsBuiltOnceForAllThatWaitAndGivesEachItsOwnIdentity) {
  TestHost host;
  host.Start();
  std::vector<std::shared_ptr<std::optional<Result<SandboxRecord>>>> creates;
  for (int at = 0; at < 4; ++at) {
    creates.push_back(host.Begin(host.node().Create(host.Spec())));
  }
  ASSERT_TRUE(host.RunUntil([&] {
    return std::all_of(creates.begin(), creates.end(), [](auto& one) { return one->has_value(); });
  }));
  EXPECT_EQ(host.catalog().snapshots().OfKind(SnapshotKind::kTemplate)->size(), 1U);
  std::set<std::string> machine_ids;
  std::set<std::string> entropies;
  for (const auto& create : creates) {
    ASSERT_TRUE((*create)->has_value()) << (*create)->error().message();
    const SandboxRecord& record = ***create;
    EXPECT_EQ(record.origin, "restored");
    EXPECT_EQ(record.agent_version, "0.1.0");
    machine_ids.insert(InitField(host, record.id, "restore", "machineId"));
    entropies.insert(InitField(host, record.id, "restore", "entropy"));
    EXPECT_EQ(InitField(host, record.id, "envVars", "E2B_SANDBOX_ID"), record.id);
    EXPECT_EQ(host.Guest(record.id, "GET", "/frozen"), "no");
  }
  EXPECT_EQ(machine_ids.size(), 4U);
  EXPECT_EQ(machine_ids.begin()->size(), 32U);
  EXPECT_EQ(entropies.size(), 4U);
  EXPECT_EQ(entropies.begin()->size(), 88U);  // 64 bytes in base64
  const auto kept = host.catalog().snapshots().OfKind(SnapshotKind::kTemplate)->front();
  EXPECT_TRUE(kept.has_working_set);
  struct stat info = {};
  ASSERT_EQ(::stat((host.config.data_dir + "/layers/" + kept.id + ".state").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0400U);
}

TEST(Template, IsUsedAgainAfterARestartAndRebuiltWhenItsPartsChange) {
  TestHost host;
  host.Start();
  host.Create();
  const auto first = host.catalog().snapshots().OfKind(SnapshotKind::kTemplate)->front();
  host.Stop();
  host.Start();
  host.Create();
  const auto again = host.catalog().snapshots().OfKind(SnapshotKind::kTemplate).value();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again.front().id, first.id);
  host.Stop();
  host.Touch("images/initramfs.img", 9000);
  host.Start();
  EXPECT_TRUE(host.catalog().snapshots().OfKind(SnapshotKind::kTemplate)->empty());
  host.Create();
  const auto fresh = host.catalog().snapshots().OfKind(SnapshotKind::kTemplate).value();
  ASSERT_EQ(fresh.size(), 1U);
  EXPECT_NE(fresh.front().fingerprint, first.fingerprint);
}

TEST(Template, FailuresOfEachStepAreToldAndLeaveNothing) {
  struct Case {
    const char* word;
    const char* wanted;
  };
  for (const Case& c :
       {Case{"refuse", "kernel is not an ELF file"}, Case{"panic", "guest_panic"},
        Case{"badinit", "agent refused /init"}, Case{"badfreeze", "agent refused /freeze"},
        Case{"nosnapshot", "snapshot refused"}, Case{"halfsnapshot", "disk full"},
        Case{"diesnapshot", "VMM is gone"}, Case{"badrestore", "agent refused /init"}}) {
    TestHost host;
    host.config.command_line = std::string("fake=") + c.word;
    host.Start();
    const auto made = host.Run(host.node().Create(host.Spec()));
    ASSERT_FALSE(made.has_value()) << c.word;
    EXPECT_NE(made.error().message().find(c.wanted), std::string::npos)
        << c.word << ": " << made.error().message();
    EXPECT_EQ(host.Processes(), Strings()) << c.word;
    EXPECT_EQ(host.node().live_count(), 0U);
    if (std::string_view(c.word) != "badrestore") {  // there the template itself is fine
      EXPECT_EQ(host.Everything(), Strings()) << c.word;
      EXPECT_TRUE(host.catalog().layers().List()->empty()) << c.word;
    }
  }
}

TEST(Template, OneThatCannotBeRestoredIsBuiltAnewAndThenGivenUp) {
  TestHost host;
  host.config.command_line = "fake=norestore";
  host.Start();
  const auto made = host.Run(host.node().Create(host.Spec()));
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message().find("memory layers do not fit"), std::string::npos)
      << made.error().message();
  EXPECT_TRUE(host.catalog().snapshots().OfKind(SnapshotKind::kTemplate)->empty());
  EXPECT_EQ(host.Everything(), Strings());
}

TEST(Fork, FiftyOfOneSourceKeepItsDiskChainShort) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  for (int at = 0; at < 50; ++at) {
    auto forked = host.Run(host.node().Fork(host.team, id, Forks(1)));
    ASSERT_TRUE(forked.has_value()) << forked.error().message();
    ASSERT_TRUE(forked->children[0].has_value()) << forked->children[0].error().message();
    ASSERT_TRUE(host.Run(host.node().Kill(host.team, forked->children[0]->id)).has_value());
  }
  const auto chains = host.catalog().layers().ChainsOf({LayerUser::Kind::kSandbox, id}).value();
  EXPECT_LE(chains.at("root").size(), 14U);
  EXPECT_LT(host.LayerFiles().size(), 24U);
}

TEST(Fork, ChildrenHaveMemoryAndDiskOfTheSourceWhichGoesOn) {
  TestHost host;
  host.Start();
  CreateSpec spec = host.Spec();
  spec.environment = {{"A", "b"}};
  const SandboxRecord source = host.Run(host.node().Create(spec)).value();
  host.Guest(source.id, "POST", "/memory", "one");
  host.Guest(source.id, "POST", "/disk", "one");
  const auto forked = host.Run(host.node().Fork(host.team, source.id, Forks(3)));
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  ASSERT_EQ(forked->children.size(), 3U);
  EXPECT_EQ(json::parse(forked->measures).at("pauseUs").as_int64(), 1500);
  host.Guest(source.id, "POST", "/memory", "two");
  host.Guest(source.id, "POST", "/disk", "two");
  for (const ForkOutcome& child : forked->children) {
    ASSERT_TRUE(child.has_value()) << child.error().message();
    EXPECT_NE(child->envd_token, source.envd_token);
    EXPECT_EQ(child->origin, "forked");
    EXPECT_EQ(host.Guest(child->id, "GET", "/memory"), "one");
    EXPECT_EQ(host.Guest(child->id, "GET", "/disk"), "one");
    EXPECT_EQ(InitField(host, child->id, "envVars", "A"), "b");
    EXPECT_EQ(InitField(host, child->id, "envVars", "E2B_SANDBOX_ID"), child->id);
  }
  EXPECT_EQ(host.Guest(source.id, "GET", "/disk"), "onetwo");
  EXPECT_EQ(host.node().FindRunning(host.team, source.id)->end_at, source.end_at);
  // A fork of a fork of a fork, each of them paused and resumed once.
  std::string last = forked->children[0]->id;
  for (const char* mark : {"x", "y", "z"}) {
    host.Guest(last, "POST", "/disk", mark);
    ASSERT_TRUE(host.Run(host.node().Pause(host.team, last, true)).has_value());
    ASSERT_TRUE(host.Run(host.node().Resume(host.team, last, {60})).has_value());
    auto next = host.Run(host.node().Fork(host.team, last, Forks(1)));
    ASSERT_TRUE(next.has_value() && next->children[0].has_value());
    last = next->children[0]->id;
  }
  EXPECT_EQ(host.Guest(last, "GET", "/disk"), "onexyz");
  EXPECT_EQ(host.Guest(last, "GET", "/memory"), "one");
}

TEST(Fork, SharedLayersGoWithTheirLastUser) {
  TestHost host;
  host.Start();
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, host.Create())).has_value());
  const Strings before = host.Everything();
  const size_t rows = host.catalog().layers().List()->size();
  const size_t descriptors = TestHost::Descriptors();
  const std::string source = host.Create();
  auto forked = host.Run(host.node().Fork(host.team, source, Forks(2)));
  ASSERT_TRUE(forked.has_value());
  EXPECT_TRUE(host.Run(host.node().Kill(host.team, source)).has_value());
  EXPECT_EQ(host.Guest(forked->children[0]->id, "GET", "/health"), "");
  for (const ForkOutcome& child : forked->children) {
    EXPECT_TRUE(host.Run(host.node().Kill(host.team, child->id)).has_value());
  }
  EXPECT_EQ(host.Everything(), before);
  EXPECT_EQ(host.catalog().layers().List()->size(), rows);
  EXPECT_TRUE(host.RunUntil([&] { return TestHost::Descriptors() <= descriptors; }, 2000))
      << TestHost::Descriptors() << " " << descriptors;
}

TEST(Fork, RefusesWhatItCannotDo) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  const auto code = [&](const std::string& team, int64_t count) {
    const auto forked = host.Run(host.node().Fork(team, id, Forks(count)));
    return forked ? ErrorCode::kInternal : forked.error().code();
  };
  EXPECT_EQ(code(host.team, 0), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(host.team, 101), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(host.other_team, 1), ErrorCode::kNotFound);
  host.config.max_sandboxes = 1;
  EXPECT_EQ(code(host.team, 1), ErrorCode::kExhausted);
  host.config.max_sandboxes = 3;
  const auto partly = host.Run(host.node().Fork(host.team, id, Forks(4)));
  ASSERT_TRUE(partly.has_value());
  EXPECT_EQ(std::count_if(partly->children.begin(), partly->children.end(),
                          [](const ForkOutcome& one) { return one.has_value(); }),
            2);
  EXPECT_EQ(partly->children[3].error().code(), ErrorCode::kExhausted);
  host.config.max_sandboxes = 1000;
  host.config.max_memory_bytes = 1;
  EXPECT_EQ(code(host.team, 1), ErrorCode::kExhausted);
  host.config.max_memory_bytes = 0;
  host.Guest(id, "POST", "/fake/word", "badrestore");
  const auto broken = host.Run(host.node().Fork(host.team, id, Forks(2)));
  ASSERT_TRUE(broken.has_value());
  EXPECT_FALSE(broken->children[0].has_value());
  EXPECT_EQ(host.Processes().size(), 3U);  // the source and the two of before
  host.Guest(id, "POST", "/fake/word", "halfsnapshot");
  EXPECT_EQ(code(host.team, 1), ErrorCode::kInternal);
  EXPECT_EQ(host.StateOf(id), SandboxState::kRunning);
  EXPECT_EQ(host.Processes().size(), 3U);
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, partly->children[0]->id, true)).has_value());
  EXPECT_EQ(host.Run(host.node().Fork(host.team, partly->children[0]->id, Forks(1))).error().code(),
            ErrorCode::kConflict);
}

TEST(Restore, OfAGuestThatDiesByItselfIsTriedOnceMore) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/memory", "warm");
  const std::string mark = host.folder + "/mark";
  host.Guest(id, "POST", "/fake/word", "dierestore:" + mark);
  const auto forked = host.Run(host.node().Fork(host.team, id, Forks(2)));
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  for (const ForkOutcome& child : forked->children) {
    ASSERT_TRUE(child.has_value()) << child.error().message();
    EXPECT_EQ(host.Guest(child->id, "GET", "/memory"), "warm");
    EXPECT_EQ(host.Guest(child->id, "GET", "/disk"), host.Guest(id, "GET", "/disk"));
  }
  EXPECT_EQ(::unlink(mark.c_str()), 0);  // one has died
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  ASSERT_TRUE(host.Run(host.node().Resume(host.team, id, {10})).has_value());
  EXPECT_EQ(host.Guest(id, "GET", "/memory"), "warm");
  EXPECT_EQ(::unlink(mark.c_str()), 0);
  EXPECT_EQ(host.Processes().size(), 3U);
  // One that always dies stays paused, and the error says how it ended.
  host.Guest(id, "POST", "/fake/word", "dierestore");
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, id, true)).has_value());
  const auto dead = host.Run(host.node().Resume(host.team, id, {10}));
  ASSERT_FALSE(dead.has_value());
  EXPECT_NE(dead.error().message().find("exit code 6"), std::string::npos)
      << dead.error().message();
  EXPECT_EQ(host.StateOf(id), SandboxState::kPaused);
  EXPECT_EQ(host.Processes().size(), 2U);
}

TEST(Fork, SourceThatDiesMeanwhileFailsAllOfIt) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  host.Guest(id, "POST", "/fake/word", "diesnapshot");
  EXPECT_FALSE(host.Run(host.node().Fork(host.team, id, Forks(3))).has_value());
  EXPECT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kDead; }));
  EXPECT_EQ(host.Processes(), Strings());
  EXPECT_EQ(host.node().live_count(), 0U);
}

TEST(Snapshot, IsATemplateOfItsOwn) {
  TestHost host;
  host.Start();
  CreateSpec spec = host.Spec();
  spec.environment = {{"A", "old"}, {"B", "old"}};
  const std::string id = host.Run(host.node().Create(spec)).value().id;
  host.Guest(id, "POST", "/memory", "warm");
  host.Guest(id, "POST", "/disk", "data");
  const auto unnamed = host.Run(host.node().Snapshot(host.team, id, ""));
  ASSERT_TRUE(unnamed.has_value()) << unnamed.error().message();
  const auto named = host.Run(host.node().Snapshot(host.team, id, "Default/Tools:v1"));
  ASSERT_TRUE(named.has_value()) << named.error().message();
  EXPECT_EQ(PublicSnapshotId(*unnamed), unnamed->template_id + ":default");
  EXPECT_EQ(PublicSnapshotId(*named), "default/tools:v1");
  EXPECT_EQ(PublicSnapshotName(*named), "default/tools");
  host.Guest(id, "POST", "/memory", "later");
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
  for (const std::string& reference : {PublicSnapshotId(*unnamed), unnamed->template_id,
                                       PublicSnapshotId(*named), std::string("tools:v1")}) {
    CreateSpec from = host.Spec(reference);
    from.environment = {{"B", "new"}};
    const auto made = host.Run(host.node().Create(from));
    ASSERT_TRUE(made.has_value()) << reference << ": " << made.error().message();
    EXPECT_EQ(host.Guest(made->id, "GET", "/memory"), "warm");
    EXPECT_EQ(host.Guest(made->id, "GET", "/disk"), "data");
    EXPECT_EQ(InitField(host, made->id, "envVars", "A"), "old");
    EXPECT_EQ(InitField(host, made->id, "envVars", "B"), "new");
  }
  EXPECT_EQ(host.Run(host.node().Create(host.Spec("tools"))).error().code(), ErrorCode::kNotFound);
  CreateSpec foreign = host.Spec(PublicSnapshotId(*unnamed));
  foreign.team_id = host.other_team;
  EXPECT_EQ(host.Run(host.node().Create(foreign)).error().code(), ErrorCode::kNotFound);
  CreateSpec larger = host.Spec(PublicSnapshotId(*unnamed));
  larger.size.memory_mib = 128;
  EXPECT_EQ(host.Run(host.node().Create(larger)).error().code(), ErrorCode::kInvalidArgument);
}

TEST(Snapshot, IsListedFilteredAndDeletedOnlyWhenNobodyUsesIt) {
  TestHost host;
  host.Start();
  const std::string a = host.Create();
  const std::string b = host.Create();
  const Strings before = host.LayerFiles();
  const auto first = host.Run(host.node().Snapshot(host.team, a, "tools")).value();
  const auto second = host.Run(host.node().Snapshot(host.team, b, "tools")).value();
  host.Run(host.node().Snapshot(host.team, b, "tools:v2")).value();
  EXPECT_EQ(first.template_id, second.template_id);
  SnapshotQuery query;
  query.team_id = host.team;
  EXPECT_EQ(host.node().ListSnapshots(query)->snapshots.size(), 2U);  // the tag has moved on
  query.name = "tools";
  query.tag = "default";
  EXPECT_EQ(host.node().ListSnapshots(query)->snapshots.at(0).id, second.id);
  query.source_id = a;
  EXPECT_TRUE(host.node().ListSnapshots(query)->snapshots.empty());
  query = {};
  query.team_id = host.other_team;
  EXPECT_TRUE(host.node().ListSnapshots(query)->snapshots.empty());

  const std::string user = host.Run(host.node().Create(host.Spec("tools"))).value().id;
  const auto in_use = host.Run(host.node().DeleteSnapshot(host.team, "default/tools"));
  ASSERT_FALSE(in_use.has_value());
  EXPECT_EQ(in_use.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(in_use.error().message().find(user), std::string::npos);
  ASSERT_TRUE(host.Run(host.node().Pause(host.team, user, true)).has_value());
  EXPECT_FALSE(host.Run(host.node().DeleteSnapshot(host.team, "tools")).has_value());
  EXPECT_FALSE(host.Run(host.node().DeleteSnapshot(host.other_team, "tools")).has_value());
  ASSERT_TRUE(host.Run(host.node().Kill(host.team, user)).has_value());
  EXPECT_TRUE(host.Run(host.node().DeleteSnapshot(host.team, "tools")).has_value());
  EXPECT_EQ(host.Run(host.node().DeleteSnapshot(host.team, "tools")).error().code(),
            ErrorCode::kNotFound);
  EXPECT_EQ(host.LayerFiles().size(), before.size() + 3);  // disk tops that a and b stand on
  for (const std::string& id : {a, b}) {
    ASSERT_TRUE(host.Run(host.node().Kill(host.team, id)).has_value());
  }
  EXPECT_EQ(host.LayerFiles().size(), before.size() - 2);
}

TEST(Snapshot, RefusesForeignNamesAndASecondAtOnce) {
  TestHost host;
  host.Start();
  const std::string id = host.Create();
  for (const char* bad : {"other/tools", "a b", "tools:", "/x", "base", "a/b/c", "é"}) {
    const auto refused = host.Run(host.node().Snapshot(host.team, id, bad));
    ASSERT_FALSE(refused.has_value()) << bad;
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument) << bad;
  }
  host.Guest(id, "POST", "/fake/word", "slowsnapshot");
  const auto first = host.Begin(host.node().Snapshot(host.team, id, ""));
  ASSERT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kSnapshotting; }));
  EXPECT_EQ(host.Run(host.node().Snapshot(host.team, id, "")).error().code(), ErrorCode::kConflict);
  EXPECT_NE(host.node().FindUsable(id), nullptr);
  EXPECT_TRUE(host.Run(host.node().Resume(host.team, id, {10}))->was_running);
  EXPECT_EQ(host.Run(host.node().Resume(host.team, id, {10, true, true})).error().code(),
            ErrorCode::kConflict);
  // Pause, fork and kill wait for it.
  const auto fork = host.Begin(host.node().Fork(host.team, id, Forks(1)));
  const auto pause = host.Begin(host.node().Pause(host.team, id, true));
  ASSERT_TRUE(
      host.RunUntil([&] { return first->has_value() && fork->has_value() && pause->has_value(); }));
  EXPECT_TRUE((*first)->has_value());
  EXPECT_TRUE((*fork)->has_value() || (*pause)->has_value());
}

TEST(Snapshot, ThatFailsIsNeverListed) {
  for (const char* word : {"nosnapshot", "halfsnapshot", "diesnapshot"}) {
    TestHost host;
    host.Start();
    const std::string id = host.Create();
    host.Guest(id, "POST", "/disk", "a");
    const Strings before = host.LayerFiles();
    host.Guest(id, "POST", "/fake/word", word);
    EXPECT_FALSE(host.Run(host.node().Snapshot(host.team, id, "")).has_value()) << word;
    SnapshotQuery query;
    query.team_id = host.team;
    EXPECT_TRUE(host.node().ListSnapshots(query)->snapshots.empty()) << word;
    if (std::string_view(word) == "diesnapshot") {
      EXPECT_TRUE(host.RunUntil([&] { return host.StateOf(id) == SandboxState::kDead; }));
      EXPECT_EQ(host.LayerFiles().size(), before.size() - 1);
      continue;
    }
    EXPECT_EQ(host.StateOf(id), SandboxState::kRunning);
    host.Guest(id, "POST", "/disk", "b");
    EXPECT_EQ(host.Guest(id, "GET", "/disk"), "ab");
    const size_t more = std::string_view(word) == "halfsnapshot" ? 1 : 0;  // the new top
    EXPECT_EQ(host.LayerFiles().size(), before.size() + more) << word;
  }
}

}  // namespace
}  // namespace space
