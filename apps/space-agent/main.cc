// space-agent: PID 1 of a guest, or `space-agent serve` for envd alone on another machine.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "agent/hello.h"
#include "agent/pid1/boot.h"
#include "agent/run.h"
#include "base/log.h"
#include "wire/hello.h"

namespace {

using namespace space;
using namespace space::agent;

constexpr const char* kUsage =
    "usage: space-agent serve --listen unix:PATH|tcp:ADDRESS:PORT [--listen ...]\n"
    "                         [--default-user NAME] [--token-file FILE]\n"
    "                         [--guest-root DIR] [--cgroup DIR]   for tests: /freeze and /init\n"
    "       space-agent version\n"
    "Without arguments and as PID 1 it boots a guest.\n";

int Complain(const std::string& message) {
  std::fprintf(stderr, "space-agent: %s\n", message.c_str());
  return 2;
}

[[noreturn]] void BecomeInit() {
  auto guest = pid1::BootGuest();
  if (!guest) {
    pid1::Die(guest.error());
  }
  auto listeners = ListenInGuest();
  if (!listeners) {
    pid1::Die(listeners.error());
  }
  if (const auto hello = SayHello(); !hello) {
    log::Warn("hello_failed", {{"error", hello.error().message()}});
  }
  // Requests that come meanwhile wait in the listeners' queues.
  pid1::FinishSetup(*guest);
  RunGuest(*std::move(listeners), Settings(), [] { pid1::PowerOff(); });
  pid1::PowerOff();
}

Result<void> ParseServe(int argc, char** argv, ServeOptions& options) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag != "--listen" && flag != "--default-user" && flag != "--token-file" &&
        flag != "--guest-root" && flag != "--cgroup") {
      return Fail(ErrorCode::kInvalidArgument, "unknown argument", flag);
    }
    if (i + 1 >= argc) {
      return Fail(ErrorCode::kInvalidArgument, "a value is missing after", flag);
    }
    const std::string value = argv[++i];
    if (flag == "--listen") {
      options.listen.push_back(value);
    } else if (flag == "--default-user") {
      options.settings.default_user = value;
    } else if (flag == "--guest-root") {
      options.guest_root = value;
    } else if (flag == "--cgroup") {
      options.cgroup = value;
    } else {
      SPACE_TRY(std::string token, ReadFile(value, 4096), "read token file");
      token.erase(token.find_last_not_of(" \r\n") + 1);
      if (token.empty()) {
        return Fail(ErrorCode::kInvalidArgument, "token file is empty", value);
      }
      options.settings.access_token = std::move(token);
    }
  }
  if (options.listen.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "--listen is missing");
  }
  return {};
}

int Serve(int argc, char** argv) {
  ServeOptions options;
  if (const auto parsed = ParseServe(argc, argv, options); !parsed) {
    return Complain(parsed.error().message());
  }
  umask(022);
  if (const auto served = RunServe(std::move(options)); !served) {
    Complain(served.error().message());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  log::Configure("space-agent", log::Level::kInfo);
  const std::string_view command = argc > 1 ? argv[1] : "";
  try {
    if (command == "serve") {
      return Serve(argc, argv);
    }
    if (command == "version") {
      std::printf("space-agent %s, envd %s\n", kAgentVersion,
                  std::string(wire::kEnvdVersion).c_str());
      return 0;
    }
    if (getpid() == 1) {  // the kernel passes unknown words of its command line: they are ignored
      BecomeInit();
    }
  } catch (const std::exception& failure) {
    return Complain(failure.what());
  }
  std::fputs(kUsage, stderr);
  return 2;
}
