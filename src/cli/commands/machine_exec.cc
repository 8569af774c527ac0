#include "cli/commands/commands.h"
#include "cli/machine_target.h"
#include "cli/sandbox_options.h"
#include "cli/task.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

Result<int> AttachToMachine(const Invocation& invocation, AttachRequest request) {
  SPACE_TRY(const machine::Settings settings, invocation.Settings(), "machine exec");
  if (!machine::Running(settings)) {
    return Fail(ErrorCode::kNotFound, "the emulated host does not run; space machine start");
  }
  asio::io_context io;
  EndSignals signals(io);
  auto end = RunTask(io, Attach(io, MakeMachineTarget(settings), std::move(request), signals));
  if (!end) {
    Say(end.error().message());
    return ExitCodeOfStartError(end.error());
  }
  return end->code;
}

Result<int> RunExec(const Invocation& invocation) {
  if (invocation.arguments.words().empty()) {
    return Fail(ErrorCode::kInvalidArgument, "machine exec needs a command; see --help");
  }
  SPACE_TRY(AttachRequest request,
            MakeAttachRequest(invocation.arguments, invocation.arguments.words()), "machine exec");
  return AttachToMachine(invocation, std::move(request));
}

Result<int> RunShell(const Invocation& invocation) {
  AttachRequest request;
  request.process.command = {"/bin/bash", "-l"};
  request.wants_terminal = true;
  return AttachToMachine(invocation, std::move(request));
}

std::vector<OptionSpec> ExecOptions() {
  std::vector<OptionSpec> options = ProcessOptions();
  options.pop_back();  // detach: `machine exec setsid COMMAND &` says it better
  return options;
}

}  // namespace

Command MachineExec() {
  return {.name = "machine exec",
          .summary = "Run a command in the emulated host and return its code",
          .usage = "[OPTIONS] COMMAND [ARGUMENT...]",
          .options = ExecOptions(),
          .words_before_rest = 1,
          .examples = {"space machine exec uname -a",
                       "space machine exec -- sh -c 'dmesg | tail -n 20'"},
          .run = RunExec};
}

Command MachineShell() {
  return {.name = "machine shell",
          .summary = "Open a terminal in the emulated host",
          .usage = "",
          .examples = {"space machine shell", "space --config test.toml machine shell"},
          .run = RunShell};
}

}  // namespace space::cli
