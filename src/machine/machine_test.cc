#include "machine/machine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/seqpacket.h"
#include "base/units.h"
#include "machine/backlog.h"
#include "machine/channel.h"
#include "machine/console_log.h"
#include "machine/disks.h"
#include "machine/qemu_arguments.h"
#include "machine/relay.h"
#include "machine/run_state.h"
#include "machine/settings.h"

namespace space::machine {
namespace {

class Folder {
 public:
  Folder() : path_("/tmp/space-machine-test-" + RandomHex(6)) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  Folder(Folder&&) = delete;
  Folder& operator=(Folder&&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Settings SettingsIn(const Folder& folder) {
  Settings settings;
  settings.data_dir = folder / "data";
  settings.run_dir = folder / "run";
  settings.images_dir = folder / "images";
  return settings;
}

std::string ErrorOf(const std::string& text) {
  const auto settings = ParseSettings(text, "f.toml");
  return settings ? "" : settings.error().message();
}

TEST(Settings, ReadsOurKeysAndLeavesTheDaemonsAlone) {
  const auto settings = ParseSettings(
      "data_dir = \"/d\"\nlisten = \"127.0.0.2:81\"\n[limits]\nmax_sandboxes = 3\n"
      "[machine]\nmode = \"on\"\nmemory = \"3GiB\"\ncpus = 4\n",
      "f.toml");
  ASSERT_TRUE(settings) << settings.error().message();
  EXPECT_EQ(settings->data_dir, "/d");
  EXPECT_EQ(settings->images_dir, "/d/images");
  EXPECT_EQ(settings->listen_host, "127.0.0.2");
  EXPECT_EQ(settings->listen_port, 81);
  EXPECT_EQ(settings->machine.mode, Mode::kOn);
  EXPECT_EQ(settings->machine.memory_bytes, GiB(3));
  EXPECT_EQ(settings->machine.cpus, 4U);
}

TEST(Settings, ErrorsNameFileAndKey) {
  EXPECT_NE(ErrorOf("listen = \"nowhere\"").find("f.toml: listen"), std::string::npos);
  EXPECT_NE(ErrorOf("listen = 5").find("listen"), std::string::npos);
  EXPECT_NE(ErrorOf("[machine]\ncpus = 0").find("machine.cpus"), std::string::npos);
  EXPECT_NE(ErrorOf("[machine]\nmemory = \"1m\"").find("machine.memory"), std::string::npos);
  EXPECT_NE(ErrorOf("[machine]\nmode = \"maybe\"").find("machine.mode"), std::string::npos);
  EXPECT_NE(ErrorOf("[machine]\nmemroy = 1").find("machine.memroy"), std::string::npos);
  EXPECT_NE(ErrorOf("a = = b").find("f.toml:1"), std::string::npos);
}

TEST(Settings, InnerConfigurationHasTheMachinesFoldersAndKeepsTheRest) {
  const auto settings = ParseSettings(
      "data_dir = \"/d\"\nlisten = \"127.0.0.1:9\"\n[limits]\nmax_sandboxes = 3\n[machine]\ncpus = "
      "1\n",
      "f");
  ASSERT_TRUE(settings);
  const auto inner = InnerConfig(*settings);
  ASSERT_TRUE(inner);
  const auto read_back = ParseSettings(*inner, "inner");
  ASSERT_TRUE(read_back) << read_back.error().message();
  EXPECT_EQ(read_back->data_dir, "/var/lib/space");
  EXPECT_EQ(read_back->listen_host, "10.0.2.15");
  EXPECT_NE(inner->find("max_sandboxes = 3"), std::string::npos);
  EXPECT_EQ(inner->find("[machine]"), std::string::npos);
}

TEST(QemuArguments, DoubleCommasAndForwardLoopbackOnly) {
  Settings settings;
  settings.run_dir = "/r,un";
  QemuPlan plan{"/k", "/i", "/root,img", GiB(3), 2, 3456, true};
  const auto arguments = QemuArguments(plan, Layout(settings));
  std::string all;
  for (const std::string& one : arguments) {
    all += one + "\n";
  }
  EXPECT_NE(all.find("file=/root,,img,"), std::string::npos);
  EXPECT_NE(all.find("path=/r,,un/machine/exec-0.sock"), std::string::npos);
  EXPECT_NE(all.find("hostfwd=tcp:127.0.0.1:3456-10.0.2.15:3000"), std::string::npos);
  EXPECT_NE(all.find("\n3072\n"), std::string::npos);
  EXPECT_NE(all.find("serial=space-images"), std::string::npos);
  EXPECT_NE(all.find("name=space.exec.15"), std::string::npos);
}

TEST(QemuArguments, LeaveTheImagesDiskOutWhenThereIsNone) {
  const QemuPlan plan{"/k", "/i", "/r", GiB(1), 1, 1, false};
  for (const std::string& one : QemuArguments(plan, Layout(Settings()))) {
    EXPECT_EQ(one.find("space-images"), std::string::npos);
  }
}

TEST(Machine, DefaultMemoryIsHalfButAtMostEightGiB) {
  EXPECT_EQ(DefaultMemory(GiB(6)), GiB(3));
  EXPECT_EQ(DefaultMemory(GiB(64)), GiB(8));
}

TEST(Machine, StartNamesTheMissingProgramOrImage) {
  const Folder folder;
  Settings settings = SettingsIn(folder);
  StartOptions options;
  options.programs = folder.path();
  options.progress = [](const std::string&) {};
  settings.machine.qemu = "no-such-qemu";
  auto started = Start(settings, options);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message().find("no-such-qemu is not installed"), std::string::npos);
  settings.machine.qemu = "/bin/true";
  started = Start(settings, options);
  ASSERT_FALSE(started);
  EXPECT_NE(started.error().message().find("kernel/vmlinux"), std::string::npos);
}

TEST(Machine, TakenPortIsNamed) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto is_free = CheckPortIsFree("127.0.0.1", ntohs(address.sin_port));
  ASSERT_FALSE(is_free);
  EXPECT_EQ(is_free.error().code(), ErrorCode::kConflict);
  EXPECT_NE(is_free.error().message().find(std::to_string(ntohs(address.sin_port))),
            std::string::npos);
}

TEST(RunState, KnowsItsProcessAndNoOther) {
  const Folder folder;
  RunState state{::getpid(), 0, 80, GiB(1), 2};
  state.start_ticks = StartTicksOf(::getpid()).value();
  ASSERT_TRUE(SaveRunState(folder / "state", state));
  const auto running = LoadRunning(folder / "state");
  ASSERT_TRUE(running);
  EXPECT_EQ(running->port, 80);
  state.start_ticks += 1;  // the same pid, another process
  ASSERT_TRUE(SaveRunState(folder / "state", state));
  EXPECT_FALSE(LoadRunning(folder / "state"));
  EXPECT_FALSE(LoadRunning(folder / "absent"));
  EXPECT_FALSE(ParseRunState("pid -3\nstart x"));
}

// The machine's side of a handshake, as bytes.
void Answer(int socket, const std::string& before, const std::string& verdict) {
  std::string line;
  char byte = 0;
  while (::read(socket, &byte, 1) == 1 && byte != '\n') {
    line += byte;
  }
  const auto request = ParseSessionRequest(line);
  ASSERT_TRUE(request);
  ASSERT_TRUE(WriteFull(socket, before + "SPACE1 " + verdict + " " + request->nonce +
                                    (verdict == "NO" ? " agent is away\n" : "\nHTTP")));
}

int Connected(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<UniqueFd> clients;
  int connected = 0;
  for (int at = 0; at < 20; ++at) {
    clients.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(clients.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    pollfd ready = {clients.back().get(), POLLOUT, 0};
    connected += ::poll(&ready, 1, 50) == 1 && (ready.revents & POLLERR) == 0 ? 1 : 0;
  }
  return connected;
}

TEST(Backlog, IsRaisedInAnotherProcess) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);
  ASSERT_EQ(::listen(fd.get(), 1), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_LT(Connected(port), 10);
  EXPECT_EQ(RaiseBacklog(child, static_cast<uint16_t>(port ^ 1U)).error().code(),
            ErrorCode::kNotFound);
  const auto raised = RaiseBacklog(child, port);
  EXPECT_TRUE(raised) << raised.error().message();
  EXPECT_EQ(Connected(port), 20);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST(Channel, HandshakeSkipsBytesOfAnOlderSession) {
  auto pair = MakeSocketPair(SOCK_STREAM);
  ASSERT_TRUE(pair);
  std::jthread machine(
      [&] { Answer(pair->second.get(), "old bytes\nSPACE1 OK 0000\nmore", "OK"); });
  ASSERT_TRUE(Handshake(pair->first.get(), Verb::kOpen, std::chrono::seconds(5)));
  char rest[5] = {};
  ASSERT_EQ(::recv(pair->first.get(), rest, 4, MSG_WAITALL), 4);
  EXPECT_STREQ(rest, "HTTP");
}

TEST(Channel, RefusalCarriesTheMachinesReason) {
  auto pair = MakeSocketPair(SOCK_STREAM);
  ASSERT_TRUE(pair);
  std::jthread machine([&] { Answer(pair->second.get(), "", "NO"); });
  const auto done = Handshake(pair->first.get(), Verb::kOpen, std::chrono::seconds(5));
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message().find("agent is away"), std::string::npos);
}

TEST(Channel, SilenceIsATimeoutAndAClosedEndIsNot) {
  auto pair = MakeSocketPair(SOCK_STREAM);
  ASSERT_TRUE(pair);
  const auto silent = Handshake(pair->first.get(), Verb::kPing, std::chrono::milliseconds(1));
  ASSERT_FALSE(silent);
  EXPECT_EQ(silent.error().code(), ErrorCode::kTimeout);
  ASSERT_EQ(::shutdown(pair->second.get(), SHUT_WR), 0);
  const auto closed = Handshake(pair->first.get(), Verb::kPing, std::chrono::seconds(5));
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code(), ErrorCode::kUnavailable);
}

TEST(Channel, BusyPortsAreToldFromAMachineThatDoesNotRun) {
  const Folder folder;
  const Layout layout(SettingsIn(folder));
  std::filesystem::create_directories(layout.run);
  auto channel = OpenChannel(layout, Verb::kPing, std::chrono::milliseconds(300));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code(), ErrorCode::kNotFound);
  std::vector<UniqueFd> holders;
  for (size_t i = 0; i < kChannels; ++i) {
    holders.emplace_back(
        ::open(layout.channel_lock(i).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(holders.back().get(), LOCK_EX | LOCK_NB), 0);
  }
  channel = OpenChannel(layout, Verb::kPing, std::chrono::milliseconds(1));
  ASSERT_FALSE(channel);
  EXPECT_EQ(channel.error().code(), ErrorCode::kExhausted);
}

TEST(Relay, TakesOnlyItsOwnFirstLine) {
  EXPECT_EQ(ParseSessionRequest("SPACE1 OPEN abc").value().nonce, "abc");
  for (const char* wrong :
       {"", "GET / HTTP/1.1", "SPACE1 OPEN", "SPACE1 RUN abc", "SPACE1 PING a b"}) {
    EXPECT_FALSE(ParseSessionRequest(wrong)) << wrong;
  }
}

TEST(ConsoleLog, IsBoundedAndItsTailIsReadable) {
  const Folder folder;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd from(ends[0]);
  {
    UniqueFd to(ends[1]);
    std::jthread writer([to = std::move(to)] {
      for (int i = 0; i < 2000; ++i) {
        (void)WriteFull(to.get(), "\x1b[2Jline " + std::to_string(i) + "\r\n");
      }
    });
    ASSERT_TRUE(CopyToLog(from.get(), folder / "log", 4096));
  }
  EXPECT_LE(std::filesystem::file_size(folder / "log"), 3 * 4096U);
  EXPECT_LE(std::filesystem::file_size(folder / "log.1"), 3 * 4096U);
  EXPECT_EQ(LogTail(folder / "log", 2), "line 1998\nline 1999");
  EXPECT_EQ(LogTail(folder / "none", 2), "");
}

TEST(Disks, AreMadeOnceAndAnewWhenAFileChanges) {
  const Folder folder;
  ASSERT_TRUE(WriteFileAtomically(folder / "a", "one"));
  const std::vector<DiskFile> files = {{folder / "a", "sub/deep/a", 0755}};
  int made = 0;
  const auto count = [&](const std::string&) { ++made; };
  ASSERT_TRUE(MakeDisk(folder / "d.img", "label", files, count));
  ASSERT_TRUE(MakeDisk(folder / "d.img", "label", files, count));
  EXPECT_EQ(made, 1);
  ASSERT_TRUE(WriteFileAtomically(folder / "a", "three"));
  const auto again = MakeDisk(folder / "d.img", "label", files, count);
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(made, 2);
}

TEST(Disks, MissingSourceIsNamed) {
  const Folder folder;
  const auto done = MakeDisk(folder / "d.img", "label", {{folder / "gone", "gone", 0644}},
                             [](const std::string&) {});
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message().find("gone"), std::string::npos);
}

}  // namespace
}  // namespace space::machine
