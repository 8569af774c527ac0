#include "agent/process.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/write.hpp>

#include "base/log.h"

namespace space::agent {
namespace {

constexpr size_t kPipeChunkBytes = 32 * 1024;
constexpr size_t kTerminalChunkBytes = 16 * 1024;
// What may still be read when children keep writing after the process was killed: more than a pipe
// holds, so that nothing written before is lost.
constexpr size_t kMaxDrainBytes = 1 << 20;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Result<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0) {
    return FailErrno("make a pipe");
  }
  return Pipe{.read_end = UniqueFd(ends[0]), .write_end = UniqueFd(ends[1])};
}

winsize WindowSize(TerminalSize size) {
  return {.ws_row = size.rows, .ws_col = size.columns, .ws_xpixel = 0, .ws_ypixel = 0};
}

// Go's names of signals (syscall.Signal.String), where they differ from strsignal's.
std::string GoSignalName(int signal) {
  switch (signal) {
    case SIGABRT:
      return "aborted";
    case SIGALRM:
      return "alarm clock";
    case SIGBUS:
      return "bus error";
    case SIGFPE:
      return "floating point exception";
    case SIGHUP:
      return "hangup";
    case SIGILL:
      return "illegal instruction";
    case SIGINT:
      return "interrupt";
    case SIGKILL:
      return "killed";
    case SIGPIPE:
      return "broken pipe";
    case SIGQUIT:
      return "quit";
    case SIGSEGV:
      return "segmentation fault";
    case SIGTERM:
      return "terminated";
    case SIGTRAP:
      return "trace/breakpoint trap";
    case SIGUSR1:
      return "user defined signal 1";
    case SIGUSR2:
      return "user defined signal 2";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace

ProcessEnd DescribeExit(int wait_status) {
  if (WIFEXITED(wait_status)) {
    const int code = WEXITSTATUS(wait_status);
    return {.exit_code = code, .exited = true, .status = "exit status " + std::to_string(code)};
  }
  std::string status = "signal: " + GoSignalName(WTERMSIG(wait_status));
  if (WCOREDUMP(wait_status)) {
    status += " (core dumped)";
  }
  return {.exit_code = -1, .exited = false, .status = std::move(status)};
}

Process::Process(const asio::any_io_executor& executor)
    : executor_(executor),
      input_(executor),
      output_(executor),
      errors_(executor),
      deadline_(executor),
      room_(executor),
      turns_(executor) {}

Result<std::shared_ptr<Process>> Process::Start(const asio::any_io_executor& executor,
                                                SpawnRequest request, bool wants_stdin,
                                                std::optional<TerminalSize> terminal) {
  std::shared_ptr<Process> self(new Process(executor));
  std::vector<UniqueFd> theirs;  // the child's ends, closed here once it runs
  self->is_terminal_ = terminal.has_value();
  auto opened = terminal ? self->OpenTerminal(request, *terminal, theirs)
                         : self->OpenPipes(request, wants_stdin, theirs);
  if (!opened) {
    return Fail(std::move(opened).error());
  }
  auto pid = Spawn(request);
  if (!pid) {
    return Fail(std::move(pid).error());
  }
  self->pid_ = *pid;
  self->StartPump(self->output_, terminal ? OutputKind::kTerminal : OutputKind::kStdout);
  if (!terminal) {
    self->StartPump(self->errors_, OutputKind::kStderr);
  }
  return self;
}

Result<void> Process::OpenPipes(SpawnRequest& request, bool wants_stdin,
                                std::vector<UniqueFd>& theirs) {
  if (wants_stdin) {
    SPACE_TRY(Pipe in, MakePipe(), "open stdin");
    input_.assign(in.write_end.Release());
    theirs.push_back(std::move(in.read_end));
  } else {
    UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null.valid()) {
      // A root without /dev/null: a pipe whose other end is closed reads as empty just as well.
      SPACE_TRY(Pipe in, MakePipe(), "open stdin");
      null = std::move(in.read_end);
    }
    theirs.push_back(std::move(null));
  }
  SPACE_TRY(Pipe out, MakePipe(), "open stdout");
  SPACE_TRY(Pipe errors, MakePipe(), "open stderr");
  output_.assign(out.read_end.Release());
  errors_.assign(errors.read_end.Release());
  request.stdin_fd = theirs.front().get();
  request.stdout_fd = out.write_end.get();
  request.stderr_fd = errors.write_end.get();
  theirs.push_back(std::move(out.write_end));
  theirs.push_back(std::move(errors.write_end));
  return {};
}

Result<void> Process::OpenTerminal(SpawnRequest& request, TerminalSize size,
                                   std::vector<UniqueFd>& theirs) {
  UniqueFd master(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!master.valid()) {
    return FailErrno("open a terminal");
  }
  const winsize window = WindowSize(size);
  if (unlockpt(master.get()) < 0 || ioctl(master.get(), TIOCSWINSZ, &window) < 0) {
    return FailErrno("prepare the terminal");
  }
  UniqueFd slave(ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!slave.valid()) {
    return FailErrno("open the terminal's other side");
  }
  // The user owns the terminal, so that `mesg`, `tmux` and gpg may open it by name.
  if (fchown(slave.get(), request.user.uid, static_cast<gid_t>(-1)) < 0) {
    return FailErrno("give the terminal to the user");
  }
  output_.assign(master.Release());
  request.stdin_fd = request.stdout_fd = request.stderr_fd = slave.get();
  request.is_terminal = true;
  theirs.push_back(std::move(slave));
  return {};
}

void Process::StartPump(Descriptor& from, OutputKind kind) {
  ++open_outputs_;
  asio::co_spawn(executor_, Pump(shared_from_this(), from, kind), [](std::exception_ptr failure) {
    if (failure) {
      log::Error("process_pump_failed");
    }
  });
}

asio::awaitable<void> Process::Pump(std::shared_ptr<Process> self, Descriptor& from,
                                    OutputKind kind) {
  std::string buffer(kind == OutputKind::kTerminal ? kTerminalChunkBytes : kPipeChunkBytes, '\0');
  while (true) {
    co_await self->WaitForRoom();
    if (self->is_stopping_) {
      break;
    }
    const auto [error, bytes] = co_await from.async_read_some(asio::buffer(buffer), kNoThrow);
    if (error) {
      break;  // end of file; EIO at the end of a terminal; cancelled by StopWaitingForOutput
    }
    self->Publish(kind, std::string_view(buffer).substr(0, bytes));
  }
  if (self->is_stopping_) {
    self->DrainRest(from, kind, buffer);
  }
  boost::system::error_code ignored;
  from.close(ignored);
  --self->open_outputs_;
  self->FinishIfOver();
}

asio::awaitable<void> Process::WaitForRoom() {
  const auto is_held_back = [this] {
    for (const auto& subscription : subscriptions_) {
      if (subscription->is_full()) {
        return true;
      }
    }
    return false;
  };
  while (!is_stopping_ && is_held_back()) {
    co_await room_.Wait();
  }
}

void Process::DrainRest(Descriptor& from, OutputKind kind, std::string& buffer) {
  boost::system::error_code ignored;
  from.non_blocking(true, ignored);
  size_t drained = 0;
  while (drained < kMaxDrainBytes) {
    const ssize_t bytes = read(from.native_handle(), buffer.data(), buffer.size());
    if (bytes <= 0) {
      return;
    }
    Publish(kind, std::string_view(buffer).substr(0, static_cast<size_t>(bytes)));
    drained += static_cast<size_t>(bytes);
  }
}

void Process::Publish(OutputKind kind, std::string_view bytes) {
  if (subscriptions_.empty() || bytes.empty()) {
    return;
  }
  const auto shared = std::make_shared<const std::string>(bytes);
  for (const auto& subscription : subscriptions_) {
    subscription->Push({.kind = kind, .bytes = shared});
  }
}

std::shared_ptr<Subscription> Process::Subscribe() {
  auto subscription = std::make_shared<Subscription>(executor_);
  if (end_) {
    subscription->PushEnd(*end_);
  } else {
    subscriptions_.push_back(subscription);
  }
  return subscription;
}

void Process::Unsubscribe(const std::shared_ptr<Subscription>& subscription) {
  std::erase(subscriptions_, subscription);
  room_.Notify();
}

asio::awaitable<void> Process::TakeTurn() {
  const uint64_t mine = next_turn_++;
  while (turn_ != mine) {
    co_await turns_.Wait();
  }
}

asio::awaitable<Result<void>> Process::WriteInput(std::string bytes, bool to_terminal) {
  if (to_terminal != is_terminal_) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   is_terminal_ ? "process has a terminal: send input as pty"
                                : "process has no terminal: send input as stdin");
  }
  const auto self = shared_from_this();
  co_await TakeTurn();
  Descriptor& into = is_terminal_ ? output_ : input_;
  Result<void> result;
  if (!into.is_open()) {
    result = Fail(ErrorCode::kInternal, "stdin of the process is closed");
  } else {
    const auto [error, written] = co_await asio::async_write(into, asio::buffer(bytes), kNoThrow);
    if (error) {
      result = Fail(ErrorCode::kInternal, "write to stdin of the process: " + error.message());
    }
  }
  ++turn_;
  turns_.Notify();
  co_return result;
}

asio::awaitable<Result<void>> Process::CloseStdin() {
  if (is_terminal_) {
    co_return Fail(ErrorCode::kInvalidArgument, "stdin of a terminal cannot be closed: send 0x04");
  }
  const auto self = shared_from_this();
  co_await TakeTurn();
  boost::system::error_code ignored;
  input_.close(ignored);
  ++turn_;
  turns_.Notify();
  co_return Result<void>();
}

Result<void> Process::Resize(TerminalSize size) {
  if (!is_terminal_ || !output_.is_open()) {
    return Fail(ErrorCode::kInvalidArgument, "process has no terminal");
  }
  const winsize window = WindowSize(size);
  if (ioctl(output_.native_handle(), TIOCSWINSZ, &window) < 0) {
    return FailErrno("resize the terminal");
  }
  return {};
}

Result<void> Process::Signal(int signal) {
  if (end_) {
    return Fail(ErrorCode::kNotFound, "process has ended");
  }
  was_signalled_ = true;
  if (exit_) {  // only children that hold its output are left
    KillGroup(signal);
    StopWaitingForOutput();
  } else if (kill(pid_, signal) < 0) {
    return FailErrno("send a signal");
  }
  return {};
}

void Process::KillGroup(int signal) const { kill(-pid_, signal); }

void Process::KillAt(Clock::time_point deadline, std::shared_ptr<Subscription> starter) {
  deadline_.expires_at(deadline);
  deadline_.async_wait([weak = weak_from_this(),
                        starter = std::move(starter)](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self) {
      self->OnDeadline(*starter);
    }
  });
}

void Process::OnDeadline(Subscription& starter) {
  if (end_) {
    return;
  }
  starter.PushError(Error(ErrorCode::kTimeout, "the command's deadline has passed"));
  was_signalled_ = true;
  KillGroup(SIGKILL);
  if (exit_) {
    StopWaitingForOutput();
  }
}

void Process::OnExit(int wait_status) {
  exit_ = wait_status;
  if (was_signalled_) {
    StopWaitingForOutput();
  }
  FinishIfOver();
}

void Process::StopWaitingForOutput() {
  is_stopping_ = true;
  boost::system::error_code ignored;
  if (output_.is_open()) {
    output_.cancel(ignored);
  }
  if (errors_.is_open()) {
    errors_.cancel(ignored);
  }
  room_.Notify();
}

void Process::FinishIfOver() {
  if (end_ || !exit_ || open_outputs_ > 0) {
    return;
  }
  end_ = DescribeExit(*exit_);
  boost::system::error_code ignored;
  input_.close(ignored);  // a writer that still waits fails
  deadline_.cancel();
  for (const auto& subscription : std::exchange(subscriptions_, {})) {
    subscription->PushEnd(*end_);
  }
}

}  // namespace space::agent
