#include <csignal>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "cli/build_watch.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/credentials.h"
#include "cli/sandbox_options.h"

namespace space::cli {
namespace {

void TellAboutNetwork() {
  if (IsFirstTime("no-network")) {
    Say("note: sandboxes have no network yet (told once)");
  }
}

// A detached command goes on in a sandbox that nobody removes; its id is what remains.
asio::awaitable<Result<int>> RunDetached(Context& context, AttachRequest request,
                                         boost::json::object sandbox) {
  const std::string id = JsonText(sandbox, "sandboxID");
  request.process.has_input = false;
  auto started =
      co_await ProcessStream::Start(context.api.TargetOf(sandbox), std::move(request.process));
  if (!started) {
    (void)co_await context.api.Kill(id);
    Say(started.error().message());
    co_return ExitCodeOfStartError(started.error());
  }
  Print(id + "\n");
  co_return 0;
}

asio::awaitable<Result<int>> RunAttached(Context& context, AttachRequest request,
                                         boost::json::object sandbox, bool is_kept_alive,
                                         EndSignals& signals) {
  const std::string id = JsonText(sandbox, "sandboxID");
  const auto is_over = std::make_shared<bool>(false);
  if (is_kept_alive) {
    asio::co_spawn(context.io, KeepAlive(context.api, id, is_over), asio::detached);
  }
  auto end =
      co_await Attach(context.io, context.api.TargetOf(sandbox), std::move(request), signals);
  *is_over = true;
  int code = kExitOurFailure;
  if (end) {
    code = end->code;
  } else {
    const Error& error = end.error();
    std::string message = error.message();
    if (error.code() == ErrorCode::kUnavailable) {
      message = co_await DescribeCut(context.api, id, message);
    }
    Say(message);
    code = ExitCodeOfStartError(error);
  }
  const auto removed = co_await context.api.Kill(id);
  if (!removed && removed.error().code() != ErrorCode::kNotFound) {
    Say("sandbox " + id + " was not removed: " + removed.error().message());
  }
  co_return code;
}

asio::awaitable<Result<int>> CreateAndRun(Context& context, const Arguments& arguments,
                                          AttachRequest request, boost::json::object body,
                                          EndSignals& signals) {
  // A create cannot be taken back half-way: the first signal waits for it, the second does not.
  signals.Listen([](int count) {
    if (count == 1) {
      Say("interrupted: waiting for the sandbox, to remove it (again to leave it behind)");
    } else {
      Say("left behind: the sandbox in the making ends when its time is over");
      std::_Exit(kExitSignalBase + SIGINT);
    }
  });
  auto sandbox = co_await CreateWatched(context.io, context.api, std::move(body));
  signals.Listen({});
  if (!sandbox) {
    co_return Fail(std::move(sandbox).error().While("create sandbox"));
  }
  if (signals.count() > 0) {
    (void)co_await context.api.Kill(JsonText(*sandbox, "sandboxID"));
    co_return kExitSignalBase + signals.first();
  }
  if (arguments.Has("detach")) {
    co_return co_await RunDetached(context, std::move(request), *std::move(sandbox));
  }
  co_return co_await RunAttached(context, std::move(request), *std::move(sandbox),
                                 !arguments.Has("timeout"), signals);
}

Result<int> RunRun(const Invocation& invocation) {
  const Arguments& arguments = invocation.arguments;
  if (arguments.words().empty()) {
    return Fail(ErrorCode::kInvalidArgument, "run needs a command; see space run --help");
  }
  SPACE_TRY(AttachRequest request, MakeAttachRequest(arguments, arguments.words()), "run");
  SPACE_TRY(boost::json::object body, MakeCreateBody(arguments), "run");
  if (!arguments.Has("detach")) {
    SPACE_TRY_VOID(CheckTerminalWish(request.wants_terminal), "run");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "run");
  TellAboutNetwork();
  EndSignals signals(context->io);
  return context->Run(
      CreateAndRun(*context, arguments, std::move(request), std::move(body), signals));
}

}  // namespace

Command Run() {
  return {.name = "run",
          .summary = "Run a command in a new sandbox and remove it afterwards",
          .usage = "[OPTIONS] COMMAND [ARGUMENT...]",
          .options = ProcessOptions() + SizeOptions(),
          .words_before_rest = 1,
          .examples = {"space run python3 -c 'print(6*7)'",
                       "tar c . | space run -w /root --memory 2g sh -c 'tar x && make test'"},
          .run = RunRun};
}

}  // namespace space::cli
