#include "agent/hooks.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "agent/environment.h"
#include "agent/users.h"
#include "base/log.h"

namespace space::agent {
namespace {

constexpr const char* kFolder = "/etc/space/restore.d";
constexpr size_t kMaxHooks = 64;
constexpr size_t kMaxLoggedBytes = 4096;

Result<std::vector<std::string>> ListHooks(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.c_str()), closedir);
  std::vector<std::string> hooks;
  if (!listing) {
    if (errno == ENOENT) {
      return hooks;
    }
    return FailErrno("list", folder);
  }
  while (const dirent* item = readdir(listing.get())) {
    const std::string_view name = item->d_name;
    const std::string path = folder + "/" + item->d_name;
    struct stat info {};
    if (name.starts_with('.') || name.ends_with('~') || stat(path.c_str(), &info) < 0 ||
        !S_ISREG(info.st_mode) || (info.st_mode & 0111) == 0) {
      continue;
    }
    if (hooks.size() >= kMaxHooks) {
      return Fail(ErrorCode::kExhausted, "too many hooks in", folder);
    }
    hooks.push_back(path);
  }
  std::sort(hooks.begin(), hooks.end());
  return hooks;
}

SpawnRequest HookRequest(const std::string& path, int group_fd) {
  SpawnRequest request;
  request.command = path;
  request.environment = {"PATH=" + std::string(kDefaultPath), "HOME=/root", "USER=root",
                         "LOGNAME=root", "LANG=C.UTF-8"};
  request.cwd = "/";
  request.user = User{.name = "root", .uid = 0, .gid = 0, .home = "/root", .groups = {0}};
  request.cgroup_fd = group_fd;
  return request;
}

struct Outcome {
  std::string output;  // the first kMaxLoggedBytes
  Result<ProcessEnd> end;
};

asio::awaitable<Outcome> Collect(Process& process, Subscription& subscription) {
  std::string text;
  while (true) {
    while (const auto output = subscription.Pop()) {
      text.append(*output->bytes, 0, kMaxLoggedBytes - std::min(text.size(), kMaxLoggedBytes));
      process.OnOutputTaken();
    }
    if (subscription.error()) {
      co_return Outcome{.output = text, .end = Fail(*subscription.error())};
    }
    if (subscription.end()) {
      co_return Outcome{.output = text, .end = *subscription.end()};
    }
    co_await subscription.changed().Wait();
  }
}

asio::awaitable<Result<void>> RunHook(ProcessTable& table, std::string path, int group_fd) {
  SPACE_CO_TRY(const auto process,
               Process::Start(table.executor(), HookRequest(path, group_fd), false, std::nullopt),
               "hook " + path);
  table.AddUnlisted(process);
  const auto subscription = process->Subscribe();
  process->EndWithExit();
  process->KillAt(Clock::now() + kHookLimit, subscription);
  const Outcome outcome = co_await Collect(*process, *subscription);
  process->Unsubscribe(subscription);
  if (!outcome.output.empty()) {
    log::Info("hook_output", {{"hook", path}, {"text", outcome.output}});
  }
  if (!outcome.end) {
    co_return Fail(ErrorCode::kTimeout, "hook " + path + " took longer than " +
                                            std::to_string(kHookLimit.count()) + " s");
  }
  if (outcome.end->exit_code != 0) {
    co_return Fail(ErrorCode::kInternal, "hook " + path + ": " + outcome.end->status +
                                             (outcome.output.empty() ? "" : ": ") +
                                             outcome.output.substr(0, 256));
  }
  co_return Result<void>();
}

}  // namespace

asio::awaitable<Result<void>> RunHooks(ProcessTable& table, Freezer& freezer, std::string root) {
  SPACE_CO_TRY(const auto hooks, ListHooks(root + kFolder), "hooks");
  if (hooks.empty()) {
    co_return Result<void>();
  }
  SPACE_CO_TRY(const auto group, freezer.MakeScratchGroup(), "hooks");
  for (const std::string& hook : hooks) {
    SPACE_CO_TRY_VOID(co_await RunHook(table, hook, group.fd()), "");
    freezer.AdoptFrom(group);
  }
  co_return Result<void>();
}

}  // namespace space::agent
