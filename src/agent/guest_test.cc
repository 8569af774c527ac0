// What a restore changes in the guest, on a folder in place of its root and a kernel of our own.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "agent/identity.h"
#include "agent/kernel_state.h"
#include "agent/respond.h"

namespace space::agent {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class FakeKernel final : public KernelState {
 public:
  WallTime Now() const override { return now_; }
  Result<void> SetClock(WallTime now) override {
    if (refuses_) {
      return Fail(ErrorCode::kPermissionDenied, "set the clock");
    }
    now_ = now;
    return {};
  }
  Result<void> AddEntropy(std::span<const std::byte>) override { return {}; }

  WallTime now_{std::chrono::hours(1)};
  bool refuses_ = false;
};

class GuestFiles : public testing::Test {
 protected:
  GuestFiles() {
    std::string name = testing::TempDir() + "space-guest-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~GuestFiles() override { fs::remove_all(root_); }

  void Put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    ASSERT_TRUE(OverwriteFile(root_ + path, text, 0644).has_value());
  }
  std::string Get(const std::string& path) { return ReadFile(root_ + path).value_or("none"); }
  bool Exists(const std::string& path) { return fs::exists(fs::symlink_status(root_ + path)); }

  std::string root_;
};

TEST(CorrectClock, SetsAClockThatIsBehindEvenALittle) {
  FakeKernel kernel;
  const WallTime host = kernel.now_ + milliseconds(1);
  ASSERT_TRUE(CorrectClock(kernel, host).has_value());
  EXPECT_EQ(kernel.now_, host);
}

TEST(CorrectClock, LeavesAClockThatMayJustHaveWaitedForTheRequest) {
  FakeKernel kernel;
  const WallTime before = kernel.now_;
  ASSERT_TRUE(CorrectClock(kernel, before - milliseconds(49)).has_value());
  ASSERT_TRUE(CorrectClock(kernel, before).has_value());
  EXPECT_EQ(kernel.now_, before);
}

TEST(CorrectClock, SetsBackAClockThatIsAhead) {
  FakeKernel kernel;
  const WallTime host = kernel.now_ - milliseconds(60);
  ASSERT_TRUE(CorrectClock(kernel, host).has_value());
  EXPECT_EQ(kernel.now_, host);
}

TEST(CorrectClock, TellsWhenTheKernelRefuses) {
  FakeKernel kernel;
  kernel.refuses_ = true;
  EXPECT_FALSE(CorrectClock(kernel, kernel.now_ + milliseconds(1)).has_value());
}

TEST_F(GuestFiles, Overwrite_CutsAndGrows) {
  Put("/f", "long text");
  Put("/f", "x");
  EXPECT_EQ(Get("/f"), "x");
  Put("/f", "longer again");
  EXPECT_EQ(Get("/f"), "longer again");
  Put("/f", "");
  EXPECT_EQ(Get("/f"), "");
}

TEST_F(GuestFiles, Overwrite_ReplacesWhatIsNoRegularFile) {
  Put("/precious", "kept");
  fs::create_symlink(root_ + "/precious", root_ + "/link");
  ASSERT_EQ(mkfifo((root_ + "/pipe").c_str(), 0600), 0);
  fs::create_directory(root_ + "/folder");
  EXPECT_TRUE(OverwriteFile(root_ + "/link", "new", 0644).has_value());
  EXPECT_TRUE(OverwriteFile(root_ + "/pipe", "new", 0644).has_value());
  EXPECT_FALSE(OverwriteFile(root_ + "/folder", "new", 0644).has_value());
  EXPECT_FALSE(OverwriteFile(root_ + "/none/f", "new", 0644).has_value());
  EXPECT_EQ(Get("/precious"), "kept");
  EXPECT_EQ(Get("/link"), "new");
  EXPECT_EQ(Get("/pipe"), "new");
}

TEST_F(GuestFiles, MachineId_IsWrittenWhereItIs) {
  const std::string id(32, 'a');
  ASSERT_TRUE(WriteMachineId(root_, id).has_value());
  EXPECT_EQ(Get("/etc/machine-id"), id + "\n");
  EXPECT_FALSE(Exists("/var/lib/dbus/machine-id"));
  Put("/var/lib/dbus/machine-id", std::string(32, 'b') + "\n");
  ASSERT_TRUE(WriteMachineId(root_, id).has_value());
  EXPECT_EQ(Get("/var/lib/dbus/machine-id"), id + "\n");
}

TEST_F(GuestFiles, RemoveIdentity_LeavesNoSecretAndNothingElseOut) {
  for (const char* path : {"/var/lib/systemd/random-seed", "/etc/ssh/ssh_host_rsa_key",
                           "/etc/ssh/ssh_config", "/home/a/.bash_history", "/home/a/.bashrc"}) {
    Put(path, "x");
  }
  Put("/etc/machine-id", std::string(32, 'a') + "\n");
  ASSERT_TRUE(RemoveIdentity(root_).has_value());
  EXPECT_FALSE(Exists("/var/lib/systemd/random-seed"));
  EXPECT_FALSE(Exists("/etc/ssh/ssh_host_rsa_key"));
  EXPECT_FALSE(Exists("/home/a/.bash_history"));
  EXPECT_TRUE(Exists("/etc/ssh/ssh_config"));
  EXPECT_TRUE(Exists("/home/a/.bashrc"));
  EXPECT_EQ(Get("/etc/machine-id"), "");
}

TEST_F(GuestFiles, RemoveIdentity_TakesARootThatHoldsNothing) {
  EXPECT_TRUE(RemoveIdentity(root_).has_value());
}

TEST_F(GuestFiles, Generation_CountsAndShowsTheId) {
  auto generation = Generation::Create(root_);
  ASSERT_TRUE(generation.has_value());
  EXPECT_EQ(Get("/run/space/generation"), std::string(Generation::kBytes, '\0'));
  std::array<std::byte, 16> id;
  id.fill(std::byte{0x5a});
  ASSERT_TRUE(generation->Advance(id).has_value());
  ASSERT_TRUE(generation->Advance(id).has_value());
  EXPECT_EQ(Get("/run/space/generation"), '\2' + std::string(7, '\0') + std::string(16, '\x5a'));
}

TEST_F(GuestFiles, Generation_SurvivesAFileThatTheUserCut) {
  auto generation = Generation::Create(root_);
  ASSERT_TRUE(generation.has_value());
  fs::resize_file(root_ + "/run/space/generation", 0);
  std::array<std::byte, 16> id{};
  EXPECT_TRUE(generation->Advance(id).has_value());
}

TEST(RestStatus, SaysThatADiskIsFull) {
  EXPECT_EQ(RestStatus(Error(ErrorCode::kExhausted, "x").WithErrno(ENOSPC)), 507);
  EXPECT_EQ(RestStatus(Error(ErrorCode::kExhausted, "x")), 429);
  EXPECT_EQ(RestStatus(Error(ErrorCode::kTimeout, "x")), 504);
}

}  // namespace
}  // namespace space::agent
