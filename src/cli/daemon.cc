#include "cli/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <thread>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/process.h"
#include "base/units.h"
#include "cli/credentials.h"
#include "cli/machine_target.h"
#include "cli/progress.h"
#include "machine/console_log.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kTailLines = 12;
constexpr int kStartLimitMs = 60'000;
constexpr milliseconds kStopLimit{40'000};
constexpr int kShutdownLimitMs = 120'000;

std::string ExecutableOf(pid_t pid) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", ignored).string();
}

Result<ChildProcess> SpawnDaemon(const machine::Settings& settings) {
  const std::string programs = machine::ProgramFolder();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return FailErrno("make pipe");
  }
  const UniqueFd log_input(ends[0]);
  const UniqueFd log_output(ends[1]);
  SpawnSpec log;
  log.program = programs + "/space";
  log.arguments = {"machine-console", DaemonLogPath(settings)};
  log.stdin_fd = log_input.get();
  SPACE_TRY(ChildProcess logger, ChildProcess::Spawn(log), "start log of the daemon");
  SpawnSpec spec;
  spec.program = programs + "/spaced";
  if (settings.is_from_file) {
    SPACE_TRY(const std::string path, WriteDaemonConfig(settings), "start daemon");
    spec.arguments = {"--config", path};
  }
  spec.environment = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                      "LANG=C.UTF-8"};
  spec.stdout_fd = log_output.get();
  spec.stderr_fd = log_output.get();
  SPACE_TRY(ChildProcess daemon, ChildProcess::Spawn(spec), "start daemon");
  (void)std::move(logger).Detach();  // ends with the daemon's last word
  return daemon;
}

asio::awaitable<Result<int>> WaitForApi(Context& context, int limit_ms) {
  const Progress progress(context.io.get_executor(), "waiting for the daemon");
  const auto deadline = Clock::now() + milliseconds(limit_ms);
  while (Clock::now() < deadline) {
    if (co_await context.api.IsUp(2000)) {
      co_return 0;
    }
    asio::steady_timer timer(context.io, milliseconds(150));
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  co_return Fail(ErrorCode::kTimeout,
                 "the daemon does not answer at " + context.api.endpoint().url());
}

// Output of a short command in the emulated host.
asio::awaitable<Result<std::string>> MachineOutput(std::shared_ptr<EnvdTarget> target,
                                                   std::vector<std::string> command) {
  ProcessRequest request;
  request.command = std::move(command);
  SPACE_CO_TRY(ProcessStream stream, co_await ProcessStream::Start(target, std::move(request)),
               target->name());
  std::string output;
  while (output.size() < MiB(1)) {
    SPACE_CO_TRY(const ProcessEvent event, co_await stream.Next(), target->name());
    if (const auto* bytes = std::get_if<ProcessOutput>(&event)) {
      output += bytes->bytes;
    }
    if (const auto* end = std::get_if<ProcessEnd>(&event)) {
      if (ExitCodeOf(*end) != 0) {
        co_return Fail(ErrorCode::kNotFound, target->name() + ": " + output);
      }
      break;
    }
  }
  co_return output;
}

Result<void> RemoveTree(const std::string& path, std::string& removed) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return {};
  }
  SPACE_TRY_VOID(CheckPurgeable(path), "remove");
  std::filesystem::remove_all(path, error);
  if (error) {
    return Fail(ErrorCode::kIo, "remove " + path + ": " + error.message());
  }
  removed += "removed " + path + "\n";
  return {};
}

}  // namespace

Result<std::string> WriteDaemonConfig(const machine::Settings& settings) {
  SPACE_TRY(const std::string text, machine::DaemonConfig(settings), "daemon's configuration");
  SPACE_TRY_VOID(MakeDirectories(settings.run_dir, 0711), "daemon's configuration");
  const std::string path = settings.run_dir + "/spaced.toml";
  SPACE_TRY_VOID(WriteFileAtomically(path, text), "daemon's configuration");
  return path;
}

std::string DaemonLogPath(const machine::Settings& settings) {
  return settings.run_dir + "/spaced.log";
}

std::optional<pid_t> LocalDaemonPid(const machine::Settings& settings) {
  const auto text = ReadFile(settings.run_dir + "/spaced.pid", 64);
  if (!text) {
    return std::nullopt;
  }
  pid_t pid = 0;
  std::from_chars(text->data(), text->data() + text->size(), pid);
  // After an upgrade the program that runs has been replaced on disk.
  const std::string program = pid > 0 ? ExecutableOf(pid) : "";
  if (!program.ends_with("/spaced") && !program.ends_with("/spaced (deleted)")) {
    return std::nullopt;
  }
  return pid;
}

Result<void> AwaitApi(Context& context, int limit_ms) {
  SPACE_TRY(const int up, context.Run(WaitForApi(context, limit_ms)), "start daemon");
  (void)up;
  return {};
}

Result<void> StartLocalDaemon(Context& context) {
  const machine::Settings& settings = context.settings;
  SPACE_TRY_VOID(machine::CheckPortIsFree(settings.listen_host, settings.listen_port),
                 "start daemon");
  SPACE_TRY_VOID(MakeDirectories(settings.run_dir, 0711), "start daemon");
  SPACE_TRY(ChildProcess daemon, SpawnDaemon(settings), "start daemon");
  const auto deadline = Clock::now() + milliseconds(kStartLimitMs);
  while (true) {
    SPACE_TRY(const auto ended, daemon.Wait(milliseconds(0)), "start daemon");
    if (ended) {
      std::this_thread::sleep_for(milliseconds(100));  // its last words go through the logger
      return Fail(ErrorCode::kUnavailable,
                  "the daemon ended at once\n--- end of " + DaemonLogPath(settings) + "\n" +
                      machine::LogTail(DaemonLogPath(settings), kTailLines));
    }
    if (AwaitApi(context, 1000)) {
      (void)std::move(daemon).Detach();
      return {};
    }
    if (Clock::now() > deadline) {
      return Fail(ErrorCode::kTimeout, "the daemon does not answer\n--- end of " +
                                           DaemonLogPath(settings) + "\n" +
                                           machine::LogTail(DaemonLogPath(settings), kTailLines));
    }
  }
}

Result<std::string> FetchAdminKey(Context& context, bool is_emulated) {
  std::string text;
  if (is_emulated) {
    std::vector<std::string> show = {"cat", "/var/lib/space/admin.key"};
    SPACE_TRY(text,
              context.Run(MachineOutput(MakeMachineTarget(context.settings), std::move(show))),
              "fetch the first key");
  } else {
    SPACE_TRY(text, ReadFile(context.settings.data_dir + "/admin.key", 4096), "read the first key");
  }
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text;
}

Result<bool> StopLocalDaemon(Context& context) {
  const auto pid = LocalDaemonPid(context.settings);
  if (!pid) {
    return false;
  }
  SPACE_TRY(const UniqueFd pidfd, OpenPidfd(*pid), "stop daemon");
  const auto asked = context.Run(
      context.api.Ask("POST", "/space/v1/shutdown?kill=true", std::nullopt, kShutdownLimitMs));
  if (!asked) {
    Say("the daemon could not be asked to end its sandboxes: " + asked.error().message());
    (void)::kill(*pid, SIGTERM);
  }
  pollfd entry = {pidfd.get(), POLLIN, 0};
  if (::poll(&entry, 1, static_cast<int>(kStopLimit.count())) <= 0) {
    (void)::kill(*pid, SIGKILL);
    if (::poll(&entry, 1, static_cast<int>(kStopLimit.count())) <= 0) {
      return Fail(ErrorCode::kTimeout, "the daemon does not end, pid", std::to_string(*pid));
    }
  }
  return true;
}

Result<void> CheckPurgeable(const std::string& path) {
  const std::filesystem::path clean = std::filesystem::path(path).lexically_normal();
  size_t depth = 0;
  for (const auto& part : clean) {
    depth += part.empty() || part == "/" ? 0 : 1;
  }
  if (!clean.is_absolute() || depth < 2) {
    return Fail(ErrorCode::kInvalidArgument,
                "data_dir or run_dir is not one of ours alone, so it is left: " + path);
  }
  // Shared places that somebody might name; everything of ours lies in folders below them.
  for (const std::string_view shared :
       {"/var/lib", "/var/run", "/usr/local", "/usr/lib", "/usr/bin"}) {
    if (clean == shared || clean == std::string(shared) + "/") {
      return Fail(ErrorCode::kInvalidArgument, "a folder of the system is left alone: " + path);
    }
  }
  return {};
}

Result<void> PurgeAll(const machine::Settings& settings, const std::string& url,
                      std::string& removed) {
  SPACE_TRY_VOID(RemoveTree(settings.data_dir, removed), "purge");
  SPACE_TRY_VOID(RemoveTree(settings.run_dir, removed), "purge");
  SPACE_TRY(const bool had_key, ForgetKey(url), "purge");
  if (had_key) {
    removed += "removed the key for " + url + " from " + CredentialsPath() + "\n";
  }
  // Notes of what was told once; the folder goes when nothing else is in it.
  std::error_code ignored;
  for (const std::string name : {"told-no-network", "told-emulated"}) {
    if (std::filesystem::remove(UserFolder() + "/" + name, ignored)) {
      removed += "removed " + UserFolder() + "/" + name + "\n";
    }
  }
  if (std::filesystem::is_empty(UserFolder(), ignored) &&
      std::filesystem::remove(UserFolder(), ignored)) {
    removed += "removed " + UserFolder() + "\n";
  }
  return {};
}

}  // namespace space::cli
