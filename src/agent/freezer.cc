#include "agent/freezer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/cgroup.h"
#include "base/random.h"

namespace space::agent {
namespace {

using Descriptor = asio::posix::stream_descriptor;

constexpr std::string_view kUserGroup = "user";
// One attempt. A process that waits for another one in a way that no signal ends (FUSE, for one)
// cannot freeze after the other one has: then all run for a moment, and the next attempt may do.
constexpr std::chrono::milliseconds kAttempt{1'000};
constexpr std::chrono::milliseconds kBetweenAttempts{20};
constexpr std::chrono::milliseconds kBetweenRounds{1};
constexpr size_t kMaxNamed = 8;

}  // namespace

Freezer::Freezer(const asio::any_io_executor& executor) : executor_(executor) {}

Result<Freezer> Freezer::Create(const asio::any_io_executor& executor, const std::string& root) {
  Freezer freezer(executor);
  freezer.root_ = UniqueFd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!freezer.root_.valid()) {
    return FailErrno("open cgroup", root);
  }
  SPACE_TRY_VOID(cgroup::CheckVersion2(freezer.root_.get()), root);
  SPACE_TRY(freezer.user_, cgroup::Make(freezer.root_.get(), std::string(kUserGroup)), root);
  return freezer;
}

asio::awaitable<Result<void>> Freezer::Freeze(std::chrono::milliseconds limit) {
  if (!root_.valid()) {
    co_return Fail(ErrorCode::kUnimplemented, "freezing needs cgroup v2, which is not here");
  }
  if (is_frozen_) {
    co_return Result<void>();
  }
  is_frozen_ = true;  // from here on nothing is spawned
  const auto until = Clock::now() + limit;
  while (true) {
    auto frozen = co_await TryFreeze(std::min(until, Clock::now() + kAttempt));
    if (frozen) {
      co_return frozen;
    }
    const auto thawed = Thaw();
    if (!thawed || frozen.error().code() != ErrorCode::kTimeout || Clock::now() >= until) {
      co_return frozen;
    }
    is_frozen_ = true;  // between attempts no one may start either
    asio::steady_timer pause(executor_, kBetweenAttempts);
    co_await pause.async_wait(kNoThrow);
  }
}

asio::awaitable<Result<void>> Freezer::TryFreeze(Clock::time_point until) {
  while (true) {
    SPACE_CO_TRY_VOID(MarkGroups(), "freeze");
    for (size_t i = 0; i < marked_.size(); ++i) {
      if (!co_await WaitForGroup(marked_[i].name, until)) {
        co_return Fail(ErrorCode::kTimeout, "these did not freeze: " + DescribeRunning());
      }
    }
    // Whoever was not frozen yet may have made a group, or moved a process out.
    SPACE_CO_TRY(const auto groups, cgroup::Children(root_.get()), "freeze");
    const auto strays = cgroup::UserProcesses(root_.get());
    if (strays.empty() && groups.size() == marked_.size()) {
      co_return Result<void>();
    }
    if (Clock::now() >= until) {
      co_return Fail(ErrorCode::kTimeout, "these did not freeze: " + DescribeRunning());
    }
    for (const pid_t pid : strays) {
      TakeBack(pid);
    }
    asio::steady_timer pause(executor_, kBetweenRounds);
    co_await pause.async_wait(kNoThrow);
  }
}

// Orders all groups below the root to freeze, and forgets those that are gone.
Result<void> Freezer::MarkGroups() {
  SPACE_TRY(const auto names, cgroup::Children(root_.get()), "list groups");
  std::vector<Marked> marked;
  for (const std::string& name : names) {
    const auto known = std::find_if(marked_.begin(), marked_.end(),
                                    [&name](const Marked& group) { return group.name == name; });
    const bool was_frozen =
        known != marked_.end() ? known->was_frozen : cgroup::IsOrderedToFreeze(root_.get(), name);
    const auto ordered = cgroup::WriteFile(root_.get(), name + "/cgroup.freeze", "1");
    if (!ordered && ordered.error().code() != ErrorCode::kNotFound) {
      return ordered;
    }
    marked.push_back({.name = name, .was_frozen = was_frozen && name != kUserGroup});
  }
  marked_ = std::move(marked);
  return {};
}

void Freezer::TakeBack(pid_t pid) {
  const auto moved = cgroup::Move(pid, user_.get());
  if (moved || moved.error().system_errno() == ESRCH) {
    return;
  }
  // The user removed our group, or made it one that takes no processes: another one then.
  auto renewed = cgroup::Make(root_.get(), std::string(kUserGroup) + "-" + RandomHex(4));
  if (renewed) {
    user_ = *std::move(renewed);
  }
}

asio::awaitable<bool> Freezer::WaitForGroup(std::string name, Clock::time_point until) {
  UniqueFd events(openat(root_.get(), (name + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  if (!events.valid()) {
    co_return errno == ENOENT;  // removed meanwhile
  }
  if (cgroup::IsFrozen(events.get())) {
    co_return true;
  }
  Descriptor watched(executor_);
  boost::system::error_code error;
  watched.assign(events.get(), error);
  if (error) {
    co_return false;
  }
  (void)events.Release();
  asio::steady_timer deadline(executor_, until);
  deadline.async_wait([&watched](const boost::system::error_code& cancelled) {
    boost::system::error_code ignored;
    if (!cancelled) {
      watched.cancel(ignored);
    }
  });
  bool is_frozen = cgroup::IsFrozen(watched.native_handle());
  while (!is_frozen && Clock::now() < until) {
    // The kernel reports a change of the file as an urgent condition (poll's POLLPRI).
    co_await watched.async_wait(Descriptor::wait_error, kNoThrow);
    is_frozen = cgroup::IsFrozen(watched.native_handle());
  }
  co_return is_frozen;
}

Result<void> Freezer::Thaw() {
  Result<void> result;
  for (const Marked& group : std::exchange(marked_, {})) {
    if (group.was_frozen) {
      continue;
    }
    const auto written = cgroup::WriteFile(root_.get(), group.name + "/cgroup.freeze", "0");
    if (!written && written.error().code() != ErrorCode::kNotFound) {
      result = Fail(written.error());
    }
  }
  is_frozen_ = false;
  return result;
}

std::string Freezer::DescribeRunning() const {
  std::vector<pid_t> threads = cgroup::UserProcesses(root_.get());
  for (const Marked& group : marked_) {
    const auto running = cgroup::RunningThreads(root_.get(), group.name);
    threads.insert(threads.end(), running.begin(), running.end());
  }
  std::string text;
  for (size_t i = 0; i < threads.size() && i < kMaxNamed; ++i) {
    text += (i == 0 ? "" : ", ") + cgroup::DescribeThread(threads[i]);
  }
  if (threads.size() > kMaxNamed) {
    text += " and " + std::to_string(threads.size() - kMaxNamed) + " more";
  }
  return text.empty() ? "processes that come and go" : text;
}

Result<Freezer::ScratchGroup> Freezer::MakeScratchGroup() const {
  if (!root_.valid()) {
    return ScratchGroup();
  }
  const std::string name = "restore-" + RandomHex(8);  // nobody can be in it already
  SPACE_TRY(UniqueFd root, root_.Duplicate(), "make a group");
  SPACE_TRY(UniqueFd folder, cgroup::Make(root.get(), name), "make a group");
  return ScratchGroup(std::move(root), std::move(folder), name);
}

Freezer::ScratchGroup::~ScratchGroup() {
  if (folder_.valid()) {
    KillAll();
    // Fails while the killed ones still end; an empty group that stays does no harm.
    unlinkat(root_.get(), name_.c_str(), AT_REMOVEDIR);
  }
}

void Freezer::ScratchGroup::KillAll() const {
  if (folder_.valid()) {
    (void)cgroup::WriteFile(folder_.get(), "cgroup.kill", "1");
  }
}

void Freezer::AdoptFrom(const ScratchGroup& group) {
  if (group.fd() >= 0) {
    for (const pid_t pid : cgroup::Processes(group.fd())) {
      TakeBack(pid);
    }
  }
}

}  // namespace space::agent
