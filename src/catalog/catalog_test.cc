#include "catalog/catalog.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "base/fd.h"
#include "catalog/json.h"
#include "catalog/migrations.h"

namespace space {
namespace {

class CatalogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "catalogXXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    auto catalog = Catalog::Open(path());
    ASSERT_TRUE(catalog.has_value()) << catalog.error().message();
    catalog_ = *std::move(catalog);
    auto team = catalog_->keys().CreateTeam("default", 1);
    ASSERT_TRUE(team.has_value()) << team.error().message();
    team_ = team->id;
  }
  void TearDown() override {
    catalog_.reset();
    std::filesystem::remove_all(folder_);
  }
  std::string path() const { return folder_ + "/catalog.db"; }
  SandboxRecord Record(const std::string& id, Micros started) const {
    SandboxRecord record;
    record.id = id;
    record.team_id = team_;
    record.template_id = "base";
    record.started_at = started;
    record.created_at = started;
    return record;
  }

  std::string folder_;
  std::string team_;
  std::unique_ptr<Catalog> catalog_;
};

TEST_F(CatalogTest, Open_KeepsTheFileFromOthers) {
  struct stat info = {};
  ASSERT_EQ(::stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
}

TEST_F(CatalogTest, Migrate_TwiceChangesNothingAndNewerFileIsRefused) {
  catalog_.reset();
  ASSERT_TRUE(Catalog::Open(path()).has_value());
  {
    auto database = Database::Open(path());
    ASSERT_TRUE(database.has_value());
    ASSERT_TRUE((*database)->Execute("INSERT INTO migrations VALUES (999, 0)").has_value());
  }
  const auto refused = Catalog::Open(path());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnimplemented);
  EXPECT_NE(refused.error().message().find("999"), std::string::npos);
}

TEST_F(CatalogTest, Key_IsKnownOnlyWholeAndUntilRevoked) {
  KeyStore& keys = catalog_->keys();
  const auto made = keys.Create(team_, "laptop", Scope::kUse, 5);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->secret.size(), 44U);
  const auto found = keys.Authenticate(made->secret, 100);
  ASSERT_TRUE(found.has_value() && found->has_value());
  EXPECT_EQ((*found)->team_id, team_);
  EXPECT_EQ((*found)->scope, Scope::kUse);

  std::string wrong = made->secret;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_FALSE(keys.Authenticate(wrong, 100)->has_value());
  EXPECT_FALSE(keys.Authenticate(made->secret.substr(0, 12), 100)->has_value());
  EXPECT_FALSE(keys.Authenticate("", 100)->has_value());

  EXPECT_FALSE(keys.Revoke("another-team", made->key.id, 200).has_value());
  ASSERT_TRUE(keys.Revoke(team_, made->key.id, 200).has_value());
  EXPECT_FALSE(keys.Authenticate(made->secret, 300)->has_value());
  EXPECT_EQ(keys.List(team_)->at(0).revoked_at, 200);
}

TEST_F(CatalogTest, Key_IsNotInTheFile) {
  const auto made = catalog_->keys().Create(team_, "laptop", Scope::kAdmin, 5);
  ASSERT_TRUE(made.has_value());
  for (const char* suffix : {"", "-wal"}) {
    const auto bytes = ReadFile(path() + suffix, 64 << 20);
    ASSERT_TRUE(bytes.has_value());
    EXPECT_EQ(bytes->find(made->secret.substr(12)), std::string::npos) << suffix;
  }
}

TEST_F(CatalogTest, Sandbox_SurvivesReopening) {
  SandboxRecord record = Record("i1", 10);
  record.metadata = {{"k y", "v&1=%"}};
  record.allow_internet = false;
  record.envd_token = "secret";
  ASSERT_TRUE(catalog_->sandboxes().Insert(record).has_value());
  record.vmm_pid = 77;
  record.started_at = 12;
  ASSERT_TRUE(catalog_->sandboxes().Move(record, SandboxState::kRunning).has_value());
  catalog_.reset();
  catalog_ = *Catalog::Open(path());
  const auto found = catalog_->sandboxes().Find("i1");
  ASSERT_TRUE(found.has_value() && found->has_value());
  EXPECT_EQ((*found)->state, SandboxState::kRunning);
  EXPECT_EQ((*found)->metadata, record.metadata);
  EXPECT_EQ((*found)->allow_internet, false);
  EXPECT_EQ((*found)->vmm_pid, 77);
  EXPECT_EQ((*found)->started_at, 12);
}

TEST_F(CatalogTest, Move_RefusesIllegalAndStaleOnes) {
  SandboxRecord record = Record("i1", 10);
  ASSERT_TRUE(catalog_->sandboxes().Insert(record).has_value());
  const auto illegal = catalog_->sandboxes().Move(record, SandboxState::kStopping);
  ASSERT_FALSE(illegal.has_value());
  EXPECT_NE(illegal.error().message().find("from creating to stopping"), std::string::npos);
  SandboxRecord stale = record;
  ASSERT_TRUE(catalog_->sandboxes().Move(record, SandboxState::kDead).has_value());
  EXPECT_EQ(catalog_->sandboxes().Move(stale, SandboxState::kRunning).error().code(),
            ErrorCode::kConflict);
  EXPECT_FALSE(catalog_->sandboxes().Move(record, SandboxState::kRunning).has_value());
}

TEST_F(CatalogTest, List_PagesInBothDirectionsWithoutGapsOrRepeats) {
  SandboxStore& store = catalog_->sandboxes();
  for (int at = 0; at < 7; ++at) {
    SandboxRecord record = Record("i" + std::to_string(at), 100 + at / 2);  // equal times occur
    record.metadata = {{"half", at < 4 ? "a" : "b"}};
    ASSERT_TRUE(store.Insert(record).has_value());
    ASSERT_TRUE(store.Move(record, SandboxState::kRunning).has_value());
  }
  for (const bool ascending : {false, true}) {
    SandboxQuery query;
    query.team_id = team_;
    query.states = {SandboxState::kRunning};
    query.limit = 3;
    query.ascending = ascending;
    std::string seen;
    for (bool has_more = true; has_more;) {
      const auto page = store.List(query);
      ASSERT_TRUE(page.has_value()) << page.error().message();
      for (const SandboxRecord& record : page->sandboxes) {
        seen += record.id;
        query.after = {record.started_at, record.id};
      }
      has_more = page->has_more;
    }
    EXPECT_EQ(seen, ascending ? "i0i1i2i3i4i5i6" : "i6i5i4i3i2i1i0");
  }
  SandboxQuery filtered;
  filtered.states = {SandboxState::kRunning};
  filtered.metadata = {{"half", "b"}};
  filtered.started_after = 102;
  EXPECT_EQ(store.List(filtered)->sandboxes.size(), 3U);
  filtered.template_id = "other";
  EXPECT_TRUE(store.List(filtered)->sandboxes.empty());
}

TEST_F(CatalogTest, ForgetDead_LeavesTheLivingAndTheRecent) {
  SandboxStore& store = catalog_->sandboxes();
  for (const auto& [id, ended] : {std::pair("i1", 10), std::pair("i2", 30)}) {
    SandboxRecord record = Record(id, 1);
    ASSERT_TRUE(store.Insert(record).has_value());
    record.ended_at = ended;
    ASSERT_TRUE(store.Move(record, SandboxState::kDead).has_value());
  }
  ASSERT_TRUE(store.Insert(Record("i3", 1)).has_value());
  EXPECT_EQ(store.ForgetDead(20).value(), 1);
  EXPECT_FALSE(store.Find("i1")->has_value());
  EXPECT_TRUE(store.Find("i2")->has_value());
  EXPECT_TRUE(store.Find("i3")->has_value());
}

TEST_F(CatalogTest, Metrics_AreListedByTimeAndGoWithTheirSandbox) {
  SandboxRecord record = Record("imeasured", 1);
  record.state = SandboxState::kRunning;
  ASSERT_TRUE(catalog_->sandboxes().Insert(record).has_value());
  MetricStore& metrics = catalog_->metrics();
  const auto put = [&](int64_t second, double percent) {
    MetricPoint point;
    point.at = second * kMicrosPerSecond + 7;
    point.cpu_used_percent = percent;
    point.mem_used = second;
    return metrics.Put("imeasured", point).has_value();
  };
  EXPECT_TRUE(put(20, 99.5) && put(10, 0.25) && put(30, 1) && put(30, 2));
  EXPECT_FALSE(metrics.Put("inobody", MetricPoint()).has_value());
  const auto all = metrics.List("imeasured", 0, INT64_MAX).value();
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].at, 10 * kMicrosPerSecond);
  EXPECT_DOUBLE_EQ(all[0].cpu_used_percent, 0.25);
  EXPECT_DOUBLE_EQ(all[2].cpu_used_percent, 2);
  const auto middle =
      metrics.List("imeasured", 20 * kMicrosPerSecond, 20 * kMicrosPerSecond).value();
  ASSERT_EQ(middle.size(), 1U);
  EXPECT_EQ(middle[0].mem_used, 20);
  EXPECT_EQ(metrics.Newest("imeasured").value()->mem_used, 30);
  EXPECT_FALSE(metrics.Newest("inobody").value().has_value());
  ASSERT_TRUE(metrics.ForgetBefore(20 * kMicrosPerSecond).has_value());
  EXPECT_EQ(metrics.List("imeasured", 0, INT64_MAX)->size(), 2U);

  record.ended_at = 5;
  ASSERT_TRUE(catalog_->sandboxes().Move(record, SandboxState::kDead).has_value());
  EXPECT_EQ(metrics.List("imeasured", 0, INT64_MAX)->size(), 2U);
  EXPECT_EQ(catalog_->sandboxes().ForgetDead(6).value(), 1);
  EXPECT_TRUE(metrics.List("imeasured", 0, INT64_MAX)->empty());
}

TEST(SandboxState, DeadIsTheEnd) {
  for (const auto to : {SandboxState::kCreating, SandboxState::kRunning, SandboxState::kStopping,
                        SandboxState::kDead}) {
    EXPECT_FALSE(CheckMove(SandboxState::kDead, to).has_value());
  }
  EXPECT_TRUE(CheckMove(SandboxState::kStopping, SandboxState::kDead).has_value());
}

TEST(Json, ParseRefusesDepthSizeAndRest) {
  EXPECT_TRUE(ParseJson(R"({"a":[1]})").has_value());
  EXPECT_FALSE(ParseJson(std::string(100, '[')).has_value());
  EXPECT_FALSE(ParseJson(std::string(40, '[') + std::string(40, ']')).has_value());
  EXPECT_FALSE(ParseJson("\"" + std::string(kMaxJsonBytes, 'a') + "\"").has_value());
  EXPECT_FALSE(ParseJson("{} x").has_value());
  EXPECT_FALSE(ParseJson("").has_value());
}

}  // namespace
}  // namespace space
