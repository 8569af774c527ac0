#include "agent/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

namespace space::agent {
namespace {

enum class Step { kNone, kSession, kDescriptors, kUser, kDirectory, kExec };

// Everything that the child needs, made before the clone: the child must not allocate.
struct ChildPlan {
  const SpawnRequest* request;
  std::vector<std::string> candidates;
  std::vector<char*> argv;
  std::vector<char*> envp;
  Step failed_step = Step::kNone;  // written by the child, which shares our memory
  int failed_errno = 0;
};

int Abandon(ChildPlan& plan, Step step) {
  plan.failed_errno = errno;
  plan.failed_step = step;
  _exit(127);
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, &action, nullptr);  // fails for KILL and STOP, which have no handler anyway
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Best effort: /proc may not be mounted.
void RaiseOomScore() {
  const int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(fd, "100", 3);
    close(fd);
  }
}

// Raw calls: glibc's wrappers would change the user of every thread that shares our memory.
bool BecomeUser(const User& user) {
  return syscall(SYS_setgroups, user.groups.size(), user.groups.data()) == 0 &&
         syscall(SYS_setresgid, user.gid, user.gid, user.gid) == 0 &&
         syscall(SYS_setresuid, user.uid, user.uid, user.uid) == 0;
}

int RunChild(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  const SpawnRequest& request = *plan.request;
  ResetSignals();
  if (setsid() < 0) {
    return Abandon(plan, Step::kSession);
  }
  // Sources are all above 2, so that no dup2 overwrites a later source.
  if (dup2(request.stdin_fd, 0) < 0 || dup2(request.stdout_fd, 1) < 0 ||
      dup2(request.stderr_fd, 2) < 0) {
    return Abandon(plan, Step::kDescriptors);
  }
  if (request.is_terminal && ioctl(0, TIOCSCTTY, 0) < 0) {
    return Abandon(plan, Step::kSession);
  }
  RaiseOomScore();
  syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!BecomeUser(request.user)) {
    return Abandon(plan, Step::kUser);
  }
  if (chdir(request.cwd.c_str()) < 0) {
    return Abandon(plan, Step::kDirectory);
  }
  int first_errno = ENOENT;
  for (const std::string& candidate : plan.candidates) {
    execve(candidate.c_str(), plan.argv.data(), plan.envp.data());
    if (errno != ENOENT && errno != ENOTDIR) {
      first_errno = errno;
      if (errno != EACCES) {
        break;
      }
    }
  }
  errno = first_errno;
  return Abandon(plan, Step::kExec);
}

std::string_view PathOf(const std::vector<std::string>& environment) {
  for (const std::string_view variable : environment) {
    if (variable.starts_with("PATH=")) {
      return variable.substr(5);
    }
  }
  return {};
}

std::vector<std::string> Candidates(const SpawnRequest& request) {
  if (request.command.find('/') != std::string::npos) {
    return {request.command};
  }
  std::vector<std::string> candidates;
  std::string_view path = PathOf(request.environment);
  while (!path.empty() && !request.command.empty()) {
    const size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    path.remove_prefix(colon == std::string_view::npos ? path.size() : colon + 1);
    candidates.push_back((folder.empty() ? "." : std::string(folder)) + "/" + request.command);
  }
  return candidates;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  return pointers;
}

tl::unexpected<Error> Explain(const ChildPlan& plan) {
  const SpawnRequest& request = *plan.request;
  const std::string why = std::string(": ") + strerrordesc_np(plan.failed_errno);
  switch (plan.failed_step) {
    case Step::kDirectory:
      return Fail(ErrorCode::kInvalidArgument, "cwd '" + request.cwd + "'" + why);
    case Step::kExec: {
      const ErrorCode code = plan.failed_errno == ENOENT || plan.failed_errno == ENOTDIR
                                 ? ErrorCode::kNotFound
                             : plan.failed_errno == EACCES ? ErrorCode::kPermissionDenied
                                                           : ErrorCode::kInvalidArgument;
      return Fail(code, "start '" + request.command + "'" + why);
    }
    case Step::kUser:
      return Fail(ErrorCode::kInternal, "become user '" + request.user.name + "'" + why);
    default:
      return Fail(ErrorCode::kInternal, "prepare the process" + why);
  }
}

// clone3, since only that can put the child into a cgroup from its first instruction on: moving it
// later would cost a grace period of the kernel, and leave a moment outside. The child has a stack
// of its own and never returns here, so the C frame is the parent's alone.
pid_t CloneInto(clone_args& arguments, ChildPlan& plan) {
  long result = SYS_clone3;
  register ChildPlan* child_plan asm("r12") = &plan;
  register int (*child_entry)(void*) asm("r13") = RunChild;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r12, %%rdi\n\t"
      "call *%%r13\n\t"
      "ud2\n"
      "1:"
      : "+a"(result)
      : "D"(&arguments), "S"(sizeof(arguments)), "r"(child_plan), "r"(child_entry)
      : "rcx", "r11", "memory", "cc");
  if (result < 0) {
    errno = static_cast<int>(-result);
    return -1;
  }
  return static_cast<pid_t>(result);
}

pid_t CloneSharingMemory(ChildPlan& plan) {
  alignas(16) static char stack[64 * 1024];
  constexpr int kFlags = CLONE_VM | CLONE_VFORK;
  const int cgroup_fd = plan.request->cgroup_fd;
  clone_args arguments{};
  arguments.flags = kFlags | CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.stack = reinterpret_cast<uint64_t>(stack);
  arguments.stack_size = sizeof(stack);
  arguments.cgroup = static_cast<uint64_t>(cgroup_fd);
  // No signal handler may run in the child while it shares our memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = cgroup_fd < 0 ? -1 : CloneInto(arguments, plan);
  // Containers that filter clone3 still allow clone. The group may be gone (ENODEV), or take no
  // processes (EBUSY, EOPNOTSUPP): root in the guest may do that.
  if (cgroup_fd < 0 || (pid < 0 && errno != EAGAIN && errno != ENOMEM)) {
    pid = clone(RunChild, stack + sizeof(stack), kFlags | SIGCHLD, &plan);
  }
  const int clone_errno = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = clone_errno;
  return pid;
}

}  // namespace

Result<pid_t> Spawn(const SpawnRequest& request) {
  ChildPlan plan{.request = &request, .candidates = Candidates(request), .argv = {}, .envp = {}};
  plan.argv = Pointers(request.arguments);
  plan.argv.insert(plan.argv.begin(), const_cast<char*>(request.command.c_str()));
  plan.argv.push_back(nullptr);
  plan.envp = Pointers(request.environment);
  plan.envp.push_back(nullptr);

  const pid_t pid = CloneSharingMemory(plan);
  if (pid < 0) {
    return FailErrno("make a process");
  }
  if (plan.failed_step != Step::kNone) {
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return Explain(plan);
  }
  return pid;
}

}  // namespace space::agent
