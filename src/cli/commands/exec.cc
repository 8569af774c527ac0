#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/sandbox_options.h"

namespace space::cli {
namespace {

asio::awaitable<Result<int>> ExecIn(Context& context, std::string id, AttachRequest request,
                                    bool is_detached, EndSignals& signals) {
  auto target = co_await FindTarget(context.api, id);
  if (!target) {
    co_return Fail(std::move(target).error());
  }
  if (is_detached) {
    request.process.has_input = false;
    auto started = co_await ProcessStream::Start(*target, std::move(request.process));
    if (!started) {
      Say(started.error().message());
      co_return ExitCodeOfStartError(started.error());
    }
    co_return 0;
  }
  const auto is_over = std::make_shared<bool>(false);
  asio::co_spawn(context.io, KeepAlive(context.api, id, is_over), asio::detached);
  auto end = co_await Attach(context.io, *target, std::move(request), signals);
  *is_over = true;
  if (end) {
    co_return end->code;
  }
  std::string message = end.error().message();
  if (end.error().code() == ErrorCode::kUnavailable) {
    message = co_await DescribeCut(context.api, id, message);
  }
  Say(message);
  co_return ExitCodeOfStartError(end.error());
}

Result<int> Start(const Invocation& invocation, const std::string& id, AttachRequest request) {
  const bool is_detached = invocation.arguments.Has("detach");
  if (!is_detached) {
    SPACE_TRY_VOID(CheckTerminalWish(request.wants_terminal), "exec");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "exec");
  EndSignals signals(context->io);
  return context->Run(ExecIn(*context, id, std::move(request), is_detached, signals));
}

Result<int> RunExec(const Invocation& invocation) {
  std::vector<std::string> words = invocation.arguments.words();
  if (words.size() < 2) {
    return Fail(ErrorCode::kInvalidArgument,
                "exec needs a sandbox and a command; see space exec --help");
  }
  const std::string id = words.front();
  words.erase(words.begin());
  SPACE_TRY(AttachRequest request, MakeAttachRequest(invocation.arguments, std::move(words)),
            "exec");
  if (const auto limit = invocation.arguments.Value("timeout")) {
    SPACE_TRY(const std::chrono::milliseconds value, ParseDuration(*limit), "--timeout");
    request.process.limit_ms = static_cast<uint64_t>(value.count());
  }
  return Start(invocation, id, std::move(request));
}

Result<int> RunShell(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "shell needs a sandbox"), "shell");
  SPACE_TRY(AttachRequest request, MakeAttachRequest(invocation.arguments, {"/bin/bash", "-l"}),
            "shell");
  request.wants_terminal = true;
  return Start(invocation, invocation.arguments.words().front(), std::move(request));
}

}  // namespace

Command Exec() {
  return {.name = "exec",
          .summary = "Run a command in a sandbox that runs",
          .usage = "[OPTIONS] SANDBOX COMMAND [ARGUMENT...]",
          .options = ProcessOptions() + std::vector<OptionSpec>{{"timeout", 0, "DURATION",
                                                                 "end the command after this"}},
          .words_before_rest = 2,
          .examples = {"space exec $id ls -l /",
                       "space exec -u user -e A=1 $id sh -c 'echo $A; id -un'"},
          .run = RunExec};
}

Command Shell() {
  return {.name = "shell",
          .summary = "Open a terminal in a sandbox",
          .usage = "[OPTIONS] SANDBOX",
          .options = {{"env", 'e', "NAME=VALUE", "set a variable (repeatable)"},
                      {"workdir", 'w', "DIR", "directory in the sandbox"},
                      {"user", 'u', "NAME", "user in the sandbox (default: root)"}},
          .examples = {"space shell $id", "space shell -u user -w /tmp $id"},
          .run = RunShell};
}

}  // namespace space::cli
