#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace space {
namespace {

// Async-signal-safe from here to exec: the parent may have threads. The failing step's errno goes
// through `report`, which is CLOEXEC: end of file there means that exec worked.
[[noreturn]] void BecomeProgram(const SpawnSpec& spec, char* const* argv, char* const* envp,
                                std::vector<int>& plan, int report) {
  const auto fail = [&] {
    const int number = errno;
    [[maybe_unused]] const ssize_t put = ::write(report, &number, sizeof(number));
    ::_exit(127);
  };
  if (spec.new_session) {
    ::setsid();
  }
  const int null_fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) {
    fail();
  }
  // First move every source above the target range, so that no dup2 overwrites a later source.
  const int first_free = static_cast<int>(plan.size());
  report = ::fcntl(report, F_DUPFD_CLOEXEC, first_free);
  for (int& source : plan) {
    source = ::fcntl(source < 0 ? null_fd : source, F_DUPFD_CLOEXEC, first_free);
    if (source < 0) {
      fail();
    }
  }
  for (size_t target = 0; target < plan.size(); ++target) {
    if (::dup2(plan[target], static_cast<int>(target)) < 0) {
      fail();
    }
  }
  // CLOEXEC on all above the list: closed by exec, while `report` stays usable until then.
  if (::syscall(SYS_close_range, static_cast<unsigned>(first_free), ~0U, 4U) != 0) {
    fail();
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int number = 1; number < 32; ++number) {
    ::signal(number, SIG_DFL);
  }
  ::execve(spec.program.c_str(), argv, envp);
  fail();
  ::_exit(127);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Result<UniqueFd> OpenPidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.valid()) {
    return FailErrno("open pidfd of", std::to_string(pid));
  }
  return fd;
}

Result<ChildProcess> ChildProcess::Spawn(const SpawnSpec& spec) {
  std::vector<std::string> arguments = {spec.program};
  arguments.insert(arguments.end(), spec.arguments.begin(), spec.arguments.end());
  const std::vector<char*> argv = Pointers(arguments);
  const std::vector<char*> envp = Pointers(spec.environment);
  std::vector<int> plan = {spec.stdin_fd, spec.stdout_fd, spec.stderr_fd};
  plan.insert(plan.end(), spec.fds.begin(), spec.fds.end());
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    return FailErrno("make pipe");
  }
  const UniqueFd report_read(report[0]);
  UniqueFd report_write(report[1]);
  const pid_t pid = ::fork();
  if (pid < 0) {
    return FailErrno("fork for", spec.program);
  }
  if (pid == 0) {
    BecomeProgram(spec, argv.data(), envp.data(), plan, report_write.get());
  }
  report_write = UniqueFd();
  auto pidfd = OpenPidfd(pid);
  if (!pidfd) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return Fail(std::move(pidfd).error());
  }
  ChildProcess child(pid, *std::move(pidfd));
  int number = 0;
  ssize_t got = 0;
  do {
    got = ::read(report_read.get(), &number, sizeof(number));
  } while (got < 0 && errno == EINTR);
  if (got == sizeof(number)) {
    errno = number;
    return FailErrno("start", spec.program);
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pidfd_(std::move(other.pidfd_)), ended_(other.ended_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    KillAndReap();
    pid_ = std::exchange(other.pid_, -1);
    pidfd_ = std::move(other.pidfd_);
    ended_ = other.ended_;
  }
  return *this;
}

ChildProcess::~ChildProcess() { KillAndReap(); }

void ChildProcess::KillAndReap() noexcept {
  if (pid_ != -1 && !ended_) {
    Kill(SIGKILL);
    siginfo_t info = {};
    while (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0 &&
           errno == EINTR) {
    }
  }
}

void ChildProcess::Kill(int signal) const {
  ::syscall(SYS_pidfd_send_signal, pidfd_.get(), signal, nullptr, 0);
}

Result<std::optional<ExitStatus>> ChildProcess::Wait(
    std::optional<std::chrono::milliseconds> limit) {
  if (ended_) {
    return ended_;
  }
  const auto deadline =
      std::chrono::steady_clock::now() + limit.value_or(std::chrono::milliseconds(0));
  for (;;) {
    int wait_ms = -1;
    if (limit) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      wait_ms = left.count() < 0 ? 0 : static_cast<int>(left.count());
    }
    pollfd entry = {pidfd_.get(), POLLIN, 0};
    const int ready = ::poll(&entry, 1, wait_ms);
    if (ready == 0) {
      return std::optional<ExitStatus>();
    }
    if (ready > 0) {
      break;
    }
    if (errno != EINTR) {
      return FailErrno("wait for process");
    }
  }
  siginfo_t info = {};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
    return FailErrno("wait for process");
  }
  ended_ = ExitStatus{info.si_code != CLD_EXITED, info.si_status};
  return ended_;
}

UniqueFd ChildProcess::Detach() && {
  pid_ = -1;
  return std::move(pidfd_);
}

}  // namespace space
