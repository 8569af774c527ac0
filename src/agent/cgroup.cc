#include "agent/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>

namespace space::agent::cgroup {
namespace {

constexpr size_t kMaxGroups = 1024;  // of one folder: a guest may make very many
constexpr size_t kMaxListBytes = 1 << 20;
constexpr size_t kMaxThreads = 64;  // that are told
constexpr int kMaxDepth = 16;
constexpr unsigned long kKernelThread = 0x0020'0000;  // PF_KTHREAD, include/linux/sched.h

// Empty when it cannot be read.
std::string ReadAt(int folder, const char* name, size_t limit) {
  const UniqueFd file(openat(folder, name, O_RDONLY | O_CLOEXEC));
  std::string text;
  char chunk[4096];
  while (file.valid() && text.size() < limit) {
    const ssize_t bytes = read(file.get(), chunk, sizeof(chunk));
    if (bytes <= 0) {
      break;
    }
    text.append(chunk, static_cast<size_t>(bytes));
  }
  return text;
}

std::vector<pid_t> ReadIds(int folder, const char* name) {
  const std::string text = ReadAt(folder, name, kMaxListBytes);
  std::vector<pid_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    pid_t id = 0;
    const auto parsed = std::from_chars(at, end, id);
    // 0: a process outside of our pid namespace. A list that was cut ends inside a number.
    if (parsed.ec == std::errc() && id > 0 && parsed.ptr < end) {
      ids.push_back(id);
    }
    at = parsed.ptr + 1;
  }
  return ids;
}

struct ThreadState {
  std::string name;
  char state;
  unsigned long flags;
};

// proc(5): "pid (name) state ppid pgrp session tty tpgid flags ..."; the name may hold anything.
std::optional<ThreadState> ReadState(pid_t tid) {
  const std::string text =
      ReadAt(AT_FDCWD, ("/proc/" + std::to_string(tid) + "/stat").c_str(), 4096);
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open ||
      close + 2 >= text.size()) {
    return std::nullopt;
  }
  size_t at = close + 2;
  for (int skipped = 0; skipped < 6 && at != std::string::npos; ++skipped) {
    at = text.find(' ', at);
    at = at == std::string::npos ? at : at + 1;
  }
  if (at == std::string::npos) {
    return std::nullopt;
  }
  return ThreadState{.name = text.substr(open + 1, close - open - 1),
                     .state = text[close + 2],
                     .flags = std::strtoul(text.c_str() + at, nullptr, 10)};
}

void AddRunning(int folder, int depth, std::vector<pid_t>& found) {
  for (const pid_t tid : ReadIds(folder, "cgroup.threads")) {
    const auto thread = ReadState(tid);
    if (thread && (thread->state == 'R' || thread->state == 'D') && found.size() < kMaxThreads) {
      found.push_back(tid);
    }
  }
  const auto children = Children(folder);
  if (!children || depth >= kMaxDepth) {
    return;
  }
  for (const std::string& name : *children) {
    const UniqueFd child(openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (child.valid() && found.size() < kMaxThreads) {
      AddRunning(child.get(), depth + 1, found);
    }
  }
}

}  // namespace

Result<void> CheckVersion2(int folder) {
  struct statfs kind {};
  if (fstatfs(folder, &kind) < 0) {
    return FailErrno("look at a cgroup");
  }
  if (kind.f_type != CGROUP2_SUPER_MAGIC) {
    return Fail(ErrorCode::kInvalidArgument, "not a folder of cgroup v2");
  }
  return {};
}

Result<UniqueFd> Make(int parent, const std::string& name) {
  if (mkdirat(parent, name.c_str(), 0755) < 0 && errno != EEXIST) {
    return FailErrno("make cgroup", name);
  }
  UniqueFd folder(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) {
    return FailErrno("open cgroup", name);
  }
  return folder;
}

Result<std::vector<std::string>> Children(int folder) {
  UniqueFd own(openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(own.valid() ? fdopendir(own.get()) : nullptr,
                                                    closedir);
  if (!listing) {
    return FailErrno("list a cgroup");
  }
  (void)own.Release();
  std::vector<std::string> names;
  while (const dirent* item = readdir(listing.get())) {
    if (item->d_type != DT_DIR || item->d_name[0] == '.') {
      continue;
    }
    if (names.size() >= kMaxGroups) {
      return Fail(ErrorCode::kExhausted, "too many cgroups");
    }
    names.emplace_back(item->d_name);
  }
  return names;
}

Result<void> WriteFile(int folder, const std::string& name, std::string_view text) {
  const UniqueFd file(openat(folder, name.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) {
    return FailErrno("open", name);
  }
  if (write(file.get(), text.data(), text.size()) < 0) {
    return FailErrno("write", name);
  }
  return {};
}

bool IsFrozen(int events) {
  char text[256];
  const ssize_t bytes = pread(events, text, sizeof(text), 0);
  return bytes > 0 && std::string_view(text, static_cast<size_t>(bytes)).find("frozen 1") !=
                          std::string_view::npos;
}

bool IsOrderedToFreeze(int parent, const std::string& name) {
  return ReadAt(parent, (name + "/cgroup.freeze").c_str(), 16).starts_with('1');
}

std::vector<pid_t> Processes(int folder) { return ReadIds(folder, "cgroup.procs"); }

std::vector<pid_t> UserProcesses(int folder) {
  std::vector<pid_t> pids;
  for (const pid_t pid : Processes(folder)) {
    if (pid == getpid()) {
      continue;
    }
    const auto thread = ReadState(pid);
    if (thread && (thread->flags & kKernelThread) == 0) {
      pids.push_back(pid);
    }
  }
  return pids;
}

std::vector<pid_t> RunningThreads(int parent, const std::string& name) {
  std::vector<pid_t> found;
  const UniqueFd group(openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (group.valid()) {
    AddRunning(group.get(), 0, found);
  }
  return found;
}

Result<void> Move(pid_t pid, int into_folder) {
  return WriteFile(into_folder, "cgroup.procs", std::to_string(pid));
}

std::string DescribeThread(pid_t tid) {
  const auto thread = ReadState(tid);
  if (!thread) {
    return std::to_string(tid);
  }
  return std::to_string(tid) + " (" + thread->name + ", state " + thread->state + ")";
}

}  // namespace space::agent::cgroup
