#include "cli/attach.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "cli/command.h"
#include "cli/input_source.h"
#include "cli/terminal.h"

namespace space::cli {
namespace {

constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
constexpr std::chrono::seconds kGrace{2};

// What the coroutines of one attached command share. They own it together: some may still wait for
// the other side when the command has ended.
struct Session {
  Session(asio::io_context& context, std::shared_ptr<EnvdTarget> where, ProcessStream output)
      : io(context),
        target(std::move(where)),
        stream(std::move(output)),
        input_control(target, stream.pid()),
        signal_control(target, stream.pid()),
        window_control(target, stream.pid()),
        window_signals(context) {}

  asio::io_context& io;
  std::shared_ptr<EnvdTarget> target;
  ProcessStream stream;
  // A connection each: a command that does not read blocks the first, and must not block the rest.
  ProcessControl input_control;
  ProcessControl signal_control;
  ProcessControl window_control;
  asio::signal_set window_signals;
  bool has_terminal = false;
  bool is_over = false;
  bool is_ending = false;
};

asio::awaitable<void> ForwardInput(std::shared_ptr<Session> session,
                                   std::shared_ptr<InputSource> input) {
  while (!session->is_over) {
    std::string bytes = co_await input->Next();
    if (session->is_over) {
      co_return;
    }
    if (bytes.empty()) {
      if (!session->has_terminal) {
        (void)co_await session->input_control.CloseInput();
      }
      co_return;
    }
    const auto sent =
        co_await session->input_control.SendInput(std::move(bytes), session->has_terminal);
    if (!sent) {
      co_return;  // the command has closed its input or has ended; its output says the rest
    }
  }
}

asio::awaitable<void> FollowWindow(std::shared_ptr<Session> session) {
  TerminalSize known = SizeOfTerminal(STDOUT_FILENO);
  while (!session->is_over) {
    const auto [error, number] = co_await session->window_signals.async_wait(kNoThrow);
    if (error || session->is_over) {
      co_return;
    }
    const TerminalSize now = SizeOfTerminal(STDOUT_FILENO);
    if (now != known) {
      known = now;
      (void)co_await session->window_control.Resize(now);
    }
  }
}

asio::awaitable<void> EndCommand(std::shared_ptr<Session> session) {
  (void)co_await session->signal_control.Signal(SIGTERM);
  asio::steady_timer timer(session->io, kGrace);
  co_await timer.async_wait(kNoThrow);
  if (session->is_over) {
    co_return;
  }
  (void)co_await session->signal_control.Signal(SIGKILL);
  timer.expires_after(kGrace);
  co_await timer.async_wait(kNoThrow);
  if (!session->is_over) {
    session->stream.Close();
  }
}

asio::awaitable<void> KillAndLeave(std::shared_ptr<Session> session) {
  (void)co_await session->signal_control.Signal(SIGKILL);
  session->stream.Close();
}

void OnEndSignal(const std::shared_ptr<Session>& session, int count) {
  if (count == 1 && !session->is_ending) {
    session->is_ending = true;
    asio::co_spawn(session->io, EndCommand(session), asio::detached);
  } else if (count == 2) {
    asio::co_spawn(session->io, KillAndLeave(session), asio::detached);
  } else if (count > 2) {
    session->stream.Close();
  }
}

// True when it was written.
bool Deliver(const ProcessOutput& output) {
  const int fd = output.channel == ProcessOutput::Channel::kStderr ? STDERR_FILENO : STDOUT_FILENO;
  return WriteFull(fd, output.bytes).has_value();
}

asio::awaitable<Result<AttachEnd>> FollowOutput(std::shared_ptr<Session> session) {
  bool is_reader_gone = false;
  while (true) {
    auto event = co_await session->stream.Next();
    if (!event) {
      co_return Fail(std::move(event).error());
    }
    if (const auto* end = std::get_if<ProcessEnd>(&*event)) {
      co_return AttachEnd{is_reader_gone ? kExitSignalBase + SIGPIPE : ExitCodeOf(*end), false};
    }
    const auto* output = std::get_if<ProcessOutput>(&*event);
    if (output != nullptr && !is_reader_gone && !Deliver(*output)) {
      // As a shell's pipeline does: who cannot write any more is ended.
      is_reader_gone = true;
      OnEndSignal(session, 1);
    }
  }
}

// Its coroutine outlives Attach by one turn; its thread does not.
struct InputGuard {
  std::shared_ptr<InputSource> input;
  InputGuard() = default;
  InputGuard(const InputGuard&) = delete;
  InputGuard& operator=(const InputGuard&) = delete;
  InputGuard(InputGuard&&) = delete;
  InputGuard& operator=(InputGuard&&) = delete;
  ~InputGuard() {
    if (input) {
      input->Stop();
    }
  }
};

bool TakesInput(const AttachRequest& request) {
  return request.wants_terminal || request.wants_input || HasPipedInput(STDIN_FILENO);
}

}  // namespace

Result<void> CheckTerminalWish(bool wants_terminal) {
  if (wants_terminal && !IsTerminal(STDIN_FILENO)) {
    return Fail(ErrorCode::kInvalidArgument,
                "option --tty (-t) needs a terminal on standard input");
  }
  return {};
}

int ExitCodeOfStartError(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kPermissionDenied:
      return kExitNotExecutable;
    default:
      return kExitOurFailure;
  }
}

asio::awaitable<Result<AttachEnd>> Attach(asio::io_context& io, std::shared_ptr<EnvdTarget> target,
                                          AttachRequest request, EndSignals& signals) {
  SPACE_CO_TRY_VOID(CheckTerminalWish(request.wants_terminal), "attach");
  request.process.has_input = TakesInput(request);
  if (request.wants_terminal) {
    request.process.terminal = SizeOfTerminal(STDOUT_FILENO);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
    const char* kind = std::getenv("TERM");
    request.process.environment.try_emplace("TERM", kind == nullptr ? "xterm-256color" : kind);
  }
  const bool has_input = request.process.has_input;
  auto starting = ProcessStream::Start(target, std::move(request.process));
  auto stream = co_await UnlessSignalled(signals, std::move(starting), kGrace);
  if (!stream && signals.count() > 0) {
    co_return AttachEnd{kExitSignalBase + signals.first(), true};
  }
  if (!stream) {
    co_return Fail(std::move(stream).error());
  }
  auto session = std::make_shared<Session>(io, target, *std::move(stream));
  session->has_terminal = request.wants_terminal;
  std::optional<RawTerminal> raw;
  if (session->has_terminal) {
    SPACE_CO_TRY(RawTerminal entered, RawTerminal::Enter(), "terminal");
    raw.emplace(std::move(entered));
    session->window_signals.add(SIGWINCH);
    asio::co_spawn(io, FollowWindow(session), asio::detached);
  }
  InputGuard guard;
  if (has_input) {
    guard.input = std::make_shared<InputSource>(STDIN_FILENO);
    asio::co_spawn(io, ForwardInput(session, guard.input), asio::detached);
  }
  signals.Listen([session](int count) { OnEndSignal(session, count); });
  if (signals.count() > 0) {
    OnEndSignal(session, signals.count());
  }
  auto end = co_await FollowOutput(session);
  signals.Listen({});
  session->is_over = true;
  session->window_signals.cancel();
  if (signals.count() > 0) {
    co_return AttachEnd{kExitSignalBase + signals.first(), true};
  }
  co_return end;
}

}  // namespace space::cli
