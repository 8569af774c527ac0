// The command line as a whole against a fake daemon: descriptors in, descriptors and exit code out.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "base/random.h"
#include "cli/command_table.h"
#include "cli/commands/commands.h"
#include "cli/fake_daemon.h"

namespace space::cli {
namespace {

struct Done {
  int code = 0;
  std::string out;
  std::string err;
};

class Cli : public ::testing::Test {
 protected:
  Cli() {
    std::filesystem::create_directories(folder_);
    (void)WriteFileAtomically(folder_ + "/config.toml",
                              "listen = \"127.0.0.1:" + std::to_string(daemon_.port()) +
                                  "\"\ndata_dir = \"" + folder_ + "/data\"\nrun_dir = \"" +
                                  folder_ + "/run\"\n");
    // NOLINTBEGIN(concurrency-mt-unsafe): before the threads of the case
    ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    ::setenv("SPACE_CONFIG", (folder_ + "/config.toml").c_str(), 1);
    ::setenv("SPACE_API_KEY", FakeDaemon::kKey, 1);
    // NOLINTEND(concurrency-mt-unsafe)
    // Told once, elsewhere.
    std::filesystem::create_directories(folder_ + "/space");
    (void)WriteFileAtomically(folder_ + "/space/told-no-network", "");
  }
  ~Cli() override { std::filesystem::remove_all(folder_); }

  // In a child: it has descriptors and signals of its own. `input` nullopt is /dev/null.
  Done Run(const std::vector<std::string>& words, const std::optional<std::string>& input = {},
           int signal_when_hanging = 0) {
    if (input) {
      (void)WriteFileAtomically(folder_ + "/in", *input);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      Become(input ? folder_ + "/in" : "/dev/null", words);
    }
    std::thread sender;
    if (signal_when_hanging != 0) {
      sender = std::thread([this, child, signal_when_hanging] {
        while (!HasRequest("POST /process.Process/Start")) {
          std::this_thread::yield();
        }
        ::kill(child, signal_when_hanging);
      });
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (sender.joinable()) {
      sender.join();
    }
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile(folder_ + "/out").value_or(""),
            ReadFile(folder_ + "/err").value_or("")};
  }

  [[noreturn]] void Become(const std::string& input, const std::vector<std::string>& words) const {
    ::dup2(::open(input.c_str(), O_RDONLY), 0);
    ::dup2(::open((folder_ + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    ::dup2(::open((folder_ + "/err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    ::_exit(RunSpace(words));
  }

  bool HasRequest(const std::string& beginning) const {
    for (const std::string& request : daemon_.requests()) {
      if (request.starts_with(beginning)) {
        return true;
      }
    }
    return false;
  }

  std::string folder_ = "/tmp/space-cli-test-" + RandomHex(6);
  FakeDaemon daemon_;
};

constexpr const char* kId = "i00000000000000000001";

TEST_F(Cli, RunReturnsTheCommandsCodeAndRemovesTheSandbox) {
  for (const int code : {0, 1, 255}) {
    EXPECT_EQ(Run({"run", "exit", std::to_string(code)}).code, code);
    EXPECT_EQ(daemon_.live(), 0U);
  }
  EXPECT_EQ(Run({"run", "die"}).code, 137);
}

TEST_F(Cli, OutputAndErrorsStayApart) {
  const Done done = Run({"run", "both"});
  EXPECT_EQ(done.code, 0);
  EXPECT_EQ(done.out, "out\n");
  EXPECT_EQ(done.err, "err\n");
}

TEST_F(Cli, InputOfAFileReachesTheCommandWithItsEnd) {
  const std::string text(200'000, 'z');
  const Done done = Run({"run", "cat"}, text);
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.out, text);
}

TEST_F(Cli, NoInputIsTakenFromTheNullDevice) {
  Run({"run", "exit", "0"});
  for (const std::string& request : daemon_.requests()) {
    if (request.starts_with("POST /process.Process/Start")) {
      EXPECT_NE(request.find("\"stdin\":false"), std::string::npos);
    }
  }
}

TEST_F(Cli, CommandsThatCannotStartHaveDockersCodes) {
  const Done missing = Run({"exec", kId, "nothing"});
  EXPECT_EQ(missing.code, 127);
  EXPECT_NE(missing.err.find("nothing"), std::string::npos);
  EXPECT_EQ(Run({"exec", kId, "locked"}).code, 126);
  const Done lost = Run({"exec", "-w", "/no", kId, "lost"});
  EXPECT_EQ(lost.code, 125);
  EXPECT_NE(lost.err.find("/no"), std::string::npos);
}

TEST_F(Cli, InterruptedRunEndsTheCommandAndRemovesTheSandbox) {
  const Done done = Run({"run", "hang"}, {}, SIGINT);
  EXPECT_EQ(done.code, 130) << done.err;
  EXPECT_TRUE(HasRequest("POST /process.Process/SendSignal"));
  EXPECT_EQ(daemon_.live(), 0U);
}

TEST_F(Cli, TerminatedRunRemovesTheSandboxToo) {
  EXPECT_EQ(Run({"run", "hang"}, {}, SIGTERM).code, 143);
  EXPECT_EQ(daemon_.live(), 0U);
}

TEST_F(Cli, AServerThatNeverAnswersCanBeInterrupted) {
  const Done done = Run({"run", "mute"}, {}, SIGINT);
  EXPECT_EQ(done.code, 130) << done.err;
  EXPECT_EQ(daemon_.live(), 0U);
}

TEST_F(Cli, CutStreamIsOurFailure) {
  const Done done = Run({"exec", kId, "cut"});
  EXPECT_EQ(done.code, 125);
  EXPECT_NE(done.err.find("cut"), std::string::npos);
}

TEST_F(Cli, DaemonsRefusalIsPrinted) {
  const Done done = Run({"run", "--cpus", "0", "true"});
  EXPECT_EQ(done.code, 125);
  EXPECT_NE(done.err.find("cpuCount"), std::string::npos);
}

TEST_F(Cli, UnknownSandboxAndKeyAreNamed) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"exec", "inothere", "true"}, {"kill", "inothere"}, {"inspect", "inothere"}}) {
    const Done done = Run(words);
    EXPECT_EQ(done.code, 125);
    EXPECT_NE(done.err.find("inothere"), std::string::npos) << done.err;
  }
  ::setenv("SPACE_API_KEY", "e2b_11", 1);  // NOLINT(concurrency-mt-unsafe)
  const Done done = Run({"ls"});
  EXPECT_EQ(done.code, 125);
  EXPECT_NE(done.err.find("API key"), std::string::npos);
}

TEST_F(Cli, CreateListInspectKill) {
  EXPECT_EQ(Run({"create", "--timeout", "2h", "-e", "A=1"}).out, std::string(kId) + "\n");
  EXPECT_TRUE(
      HasRequest(R"(POST /v2/sandboxes {"templateID":"base","timeout":7200,"envVars":{"A":"1"}})"));
  EXPECT_EQ(Run({"ls", "-q"}).out, std::string(kId) + "\n");
  const auto listed = boost::json::parse(Run({"ps", "--json"}).out);
  EXPECT_EQ(listed.at(0).at("sandboxID"), kId);
  EXPECT_EQ(boost::json::parse(Run({"inspect", "--json", kId}).out).at("pid"), 7);
  EXPECT_EQ(Run({"rm", "--all"}).code, 0);
  EXPECT_EQ(daemon_.live(), 0U);
}

TEST_F(Cli, PauseAndResume) {
  EXPECT_EQ(Run({"pause", "--disk-only", kId}).out, std::string(kId) + "\n");
  EXPECT_TRUE(HasRequest(std::string("POST /sandboxes/") + kId + R"(/pause {"memory":false})"));
  const Done paused = Run({"exec", kId, "true"});
  EXPECT_EQ(paused.code, 125);
  EXPECT_NE(paused.err.find("is paused; `space resume"), std::string::npos) << paused.err;
  const Done again = Run({"pause", kId});
  EXPECT_EQ(again.code, 125);
  EXPECT_NE(again.err.find(kId), std::string::npos) << again.err;
  EXPECT_EQ(Run({"resume", "--timeout", "2m", "--reboot", kId}).out, std::string(kId) + "\n");
  EXPECT_TRUE(HasRequest(std::string("POST /v2/sandboxes/") + kId +
                         R"(/connect {"timeout":120,"memory":false})"));
  EXPECT_NE(Run({"resume", kId}).err.find("was running already"), std::string::npos);
}

TEST_F(Cli, ForkPrintsTheCopiesAndNamesWhatFailed) {
  const Done done = Run({"fork", "-n", "3", "--timeout", "90s", kId});
  EXPECT_TRUE(HasRequest(std::string("POST /space/v1/sandboxes/") + kId +
                         R"(/fork {"count":3,"timeout":90})"));
  EXPECT_EQ(done.out, "icopy0\nicopy1\n");
  EXPECT_EQ(done.code, 125);
  EXPECT_NE(done.err.find("no room for one more"), std::string::npos) << done.err;
  const auto report = boost::json::parse(Run({"fork", "--json", kId}).out);
  EXPECT_EQ(report.at("timings").at("pauseUs"), 1234);
}

TEST_F(Cli, SnapshotsAreMadeListedAndRemoved) {
  EXPECT_EQ(Run({"snapshot", "create", "--name", "warm:v1", kId}).out, "tsnap:default\n");
  EXPECT_TRUE(
      HasRequest(std::string("POST /sandboxes/") + kId + R"(/snapshots {"name":"warm:v1"})"));
  const auto made = boost::json::parse(Run({"snapshot", "create", "--json", kId}).out);
  EXPECT_EQ(made.at("timings").at("pauseUs"), 1234);
  EXPECT_EQ(Run({"snapshot", "ls", "-q"}).out, "tsnap:default\n");
  EXPECT_NE(Run({"snapshot", "ls", "--of", kId}).out.find("1.2 ms"), std::string::npos);
  EXPECT_TRUE(HasRequest(std::string("GET /space/v1/snapshots?limit=100&sandboxID=") + kId));
  EXPECT_EQ(Run({"snapshot", "rm", "tsnap:default"}).out, "tsnap:default\n");
  EXPECT_TRUE(HasRequest("DELETE /templates/tsnap%3Adefault"));
  const Done used = Run({"snapshot", "rm", "used"});
  EXPECT_EQ(used.code, 125);
  EXPECT_NE(used.err.find("iuser"), std::string::npos) << used.err;
}

TEST_F(Cli, PoolAndStatusShowWhatWaits) {
  EXPECT_NE(Run({"pool"}).out.find("base@2c-1024m"), std::string::npos);
  EXPECT_EQ(boost::json::parse(Run({"pool", "--json"}).out).at("templates").at(0).at("ready"), 4);
  const Done status = Run({"status"});
  EXPECT_NE(status.out.find("1 running, 3 paused, limit 9"), std::string::npos) << status.out;
  EXPECT_NE(status.out.find("4 ready, 1 in the making, of 2 templates"), std::string::npos)
      << status.out;
}

TEST_F(Cli, TemplatesAndWhatSandboxesUse) {
  const auto listed = Run({"template", "ls"});
  EXPECT_NE(listed.out.find("default/mine"), std::string::npos) << listed.out;
  EXPECT_EQ(Run({"template", "ls", "-q"}).out, "tmine\nbase\n");
  EXPECT_EQ(boost::json::parse(Run({"template", "ls", "--json"}).out).as_array().size(), 2U);
  EXPECT_EQ(Run({"template", "rm", "tmine"}).out, "tmine\n");
  const std::string id = Run({"create"}).out.substr(0, 21);
  const auto stats = Run({"stats"});
  EXPECT_NE(stats.out.find("12.3 % of 2"), std::string::npos) << stats.out;
  EXPECT_NE(stats.out.find("10 of 20 MiB"), std::string::npos) << stats.out;
  EXPECT_EQ(boost::json::parse(Run({"stats", "--json", id}).out).at(id).at("cpuCount"), 2);
  const std::string url = Run({"url", id, "8080"}).out;
  EXPECT_TRUE(url.starts_with("http://8080-" + id + ".localhost:")) << url;
  EXPECT_EQ(Run({"url", id, "0"}).code, 125);
}

TEST(Logs, WhatIsNewIsFoundThoughOlderPartsAreDropped) {
  EXPECT_EQ(NewPartOfLog("", "a\n"), "a\n");
  EXPECT_EQ(NewPartOfLog("a\n", "a\nb\n"), "b\n");
  EXPECT_EQ(NewPartOfLog("a\n", "a\n"), "");
  const std::string boot(3000, 'x');
  const std::string middle(3000, 'm');
  EXPECT_EQ(NewPartOfLog(boot + middle + "tail\n", boot + "cut\n" + middle + "tail\nnew\n"),
            "new\n");
  EXPECT_EQ(NewPartOfLog("old\n", "other\n"), "other\n");
}

TEST_F(Cli, CopyGoesBothWaysAndIntoFolders) {
  const std::string payload = "bytes\0of a file" + std::string(300'000, 'q');
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/a.bin", payload));
  EXPECT_EQ(Run({"cp", folder_ + "/a.bin", std::string(kId) + ":/root/b"}).code, 0);
  EXPECT_EQ(daemon_.files().at("/root/b"), payload);
  EXPECT_EQ(Run({"cp", folder_ + "/a.bin", std::string(kId) + ":/root/"}).code, 0);
  EXPECT_EQ(daemon_.files().at("/root/a.bin"), payload);
  EXPECT_EQ(Run({"cp", folder_ + "/a.bin", std::string(kId) + ":/root/folder"}).code, 0);
  EXPECT_EQ(daemon_.files().at("/root/folder/a.bin"), payload);
  EXPECT_EQ(Run({"cp", std::string(kId) + ":/root/b", folder_ + "/back"}).code, 0);
  EXPECT_EQ(ReadFile(folder_ + "/back").value(), payload);
  EXPECT_EQ(Run({"cp", std::string(kId) + ":/root/b", "-"}).out, payload);
  EXPECT_EQ(Run({"cp", "-", std::string(kId) + ":/root/in"}, "from a pipe").code, 0);
  EXPECT_EQ(daemon_.files().at("/root/in"), "from a pipe");
}

TEST_F(Cli, FailedCopyLeavesTheTargetAsItWas) {
  ASSERT_TRUE(WriteFileAtomically(folder_ + "/kept", "old"));
  const Done done = Run({"cp", std::string(kId) + ":/no/such", folder_ + "/kept"});
  EXPECT_EQ(done.code, 125);
  EXPECT_NE(done.err.find("/no/such"), std::string::npos);
  EXPECT_EQ(ReadFile(folder_ + "/kept").value(), "old");
}

TEST_F(Cli, WrongUseIsExplainedAndCostsNoRequest) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"nonsense"},
                                             {"run"},
                                             {"run", "--nope", "true"},
                                             {"exec", kId},
                                             {"kill"},
                                             {"pause"},
                                             {"resume", "--timeout", "0s", kId},
                                             {"fork", "-n", "0", kId},
                                             {"fork", "-n", "many", kId},
                                             {"fork", kId, kId},
                                             {"snapshot", "create"},
                                             {"snapshot", "rm"},
                                             {"pool", "x"},
                                             {"cp", "a", "b"},
                                             {"run", "--env-file", "/no/such", "true"},
                                             {"run", "-t", "true"},
                                             {"completion", "tcsh"}}) {
    EXPECT_EQ(Run(words).code, 125) << words[0];
  }
  EXPECT_TRUE(daemon_.requests().empty());
}

TEST_F(Cli, HelpVersionAndCompletionNeedNoConfiguration) {
  ::setenv("SPACE_CONFIG", "/no/such/file", 1);  // NOLINT(concurrency-mt-unsafe)
  EXPECT_EQ(Run({"--help"}).code, 0);
  EXPECT_EQ(Run({"run", "--help"}).code, 0);
  EXPECT_NE(Run({"version"}).out.find("space "), std::string::npos);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_NE(Run({"completion", shell}).out.find("inspect"), std::string::npos);
  }
  EXPECT_NE(Run({"ls"}).err.find("/no/such/file"), std::string::npos);
}

}  // namespace
}  // namespace space::cli
