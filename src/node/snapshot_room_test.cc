#include "node/snapshot_room.h"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "http/spawn.h"

namespace space {
namespace {

// A small tree that looks like /proc and /sys/fs/cgroup.
class SnapshotRoomTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "room.XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    places_ = {folder_ + "/cgroup", folder_ + "/proc"};
    Write("proc/self/cgroup", "1:memory:/other\n0::/daemon\n");
    Write("cgroup/daemon/cgroup.procs", "");
    Write("cgroup/vm/memory.current", "1000\n");
    Write("cgroup/vm/memory.high", "max\n");
    Write("cgroup/vm/memory.max", "4096\n");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string Read(const std::string& name) { return ReadFile(folder_ + "/" + name).value_or("?"); }
  void PutProcess(pid_t pid, const std::string& group) {
    Write("proc/" + std::to_string(pid) + "/cgroup", "0::" + group + "\n");
  }
  // What this process gets when it knocks as a child of `vmm`: 1 when it is let in, 0 when not.
  ssize_t Knock(pid_t vmm) {
    auto room = SnapshotRoom::Make(io_.get_executor(), vmm, places_);
    EXPECT_TRUE(room && *room);
    const UniqueFd gate = (*room)->TakeGate();
    http::Spawn(io_.get_executor(), SnapshotRoom::LetChildIn(*room), "child");
    char byte = 0;
    EXPECT_EQ(::send(gate.get(), &byte, 1, 0), 1);
    io_.run();
    return ::recv(gate.get(), &byte, 1, MSG_DONTWAIT);
  }

  boost::asio::io_context io_{1};
  std::string folder_;
  SnapshotRoom::Places places_;
};

TEST_F(SnapshotRoomTest, LimitsAreRaisedByWhatIsChargedAndComeBack) {
  PutProcess(1, "/vm");
  {
    const auto room = SnapshotRoom::Make(io_.get_executor(), 1, places_);
    ASSERT_TRUE(room.has_value()) << room.error().message();
    ASSERT_NE(*room, nullptr);
    EXPECT_EQ(Read("cgroup/vm/memory.max"), "5096");
    EXPECT_EQ(Read("cgroup/vm/memory.high"), "max\n");
  }
  EXPECT_EQ(Read("cgroup/vm/memory.max"), "4096\n");
}

TEST_F(SnapshotRoomTest, AChildOfTheGroupIsMovedToTheDaemonAndLetIn) {
  PutProcess(1, "/vm");
  PutProcess(::getpid(), "/vm");
  EXPECT_EQ(Knock(1), 1);
  EXPECT_EQ(Read("cgroup/daemon/cgroup.procs"), std::to_string(::getpid()));
}

TEST_F(SnapshotRoomTest, NeitherTheVmmItselfNorAStrangerIsMoved) {
  PutProcess(::getpid(), "/vm");
  EXPECT_EQ(Knock(::getpid()), 0);
  io_.restart();
  PutProcess(1, "/vm");
  PutProcess(::getpid(), "/elsewhere");
  EXPECT_EQ(Knock(1), 0);
  EXPECT_EQ(Read("cgroup/daemon/cgroup.procs"), "");
}

TEST_F(SnapshotRoomTest, NothingIsNeededInTheDaemonsOwnGroupOrWithoutOne) {
  PutProcess(1, "/daemon");
  PutProcess(2, "/vm/../..");  // outside of what we see
  Write("proc/3/cgroup", "1:memory:/old\n");
  for (const pid_t vmm : {1, 2, 3, 4}) {
    const auto room = SnapshotRoom::Make(io_.get_executor(), vmm, places_);
    ASSERT_TRUE(room.has_value());
    EXPECT_EQ(*room, nullptr) << vmm;
  }
}

TEST_F(SnapshotRoomTest, ALimitThatCannotBeRaisedIsNamed) {
  PutProcess(1, "/vm");
  std::filesystem::remove(folder_ + "/cgroup/vm/memory.max");
  const auto room = SnapshotRoom::Make(io_.get_executor(), 1, places_);
  ASSERT_FALSE(room.has_value());
  EXPECT_NE(room.error().message().find("memory.max"), std::string::npos);
}

}  // namespace
}  // namespace space
