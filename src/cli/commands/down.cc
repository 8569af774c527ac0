#include <unistd.h>

#include <iostream>

#include "cli/commands/commands.h"
#include "cli/daemon.h"
#include "cli/terminal.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

// Without a terminal nobody can answer, so --yes has to be said.
Result<void> Confirm(const Invocation& invocation, const machine::Settings& settings) {
  if (invocation.arguments.Has("yes")) {
    return {};
  }
  if (!IsTerminal(STDIN_FILENO)) {
    return Fail(ErrorCode::kInvalidArgument, "--purge without a terminal needs --yes");
  }
  Say("this removes " + settings.data_dir + " and " + settings.run_dir +
      " with every sandbox, key and image in them. Go on? [y/N]");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return Fail(ErrorCode::kConflict, "nothing was removed");
  }
  return {};
}

Result<int> RunDown(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "down takes no words"), "down");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "down");
  const bool is_purge = invocation.arguments.Has("purge");
  if (is_purge) {
    SPACE_TRY_VOID(Confirm(invocation, context->settings), "down");
  }
  SPACE_TRY(const bool had_daemon, StopLocalDaemon(*context), "down");
  SPACE_TRY(const machine::StopWay way, machine::Stop(context->settings), "down");
  const bool had_machine = way != machine::StopWay::kNotRunning;
  if (had_daemon) {
    Say("the daemon and its sandboxes have ended");
  }
  if (had_machine) {
    Say("the emulated host and its sandboxes have ended");
  }
  if (!had_daemon && !had_machine) {
    Say("nothing ran");
  }
  if (is_purge) {
    std::string removed;
    const auto done = PurgeAll(context->settings, context->api.endpoint().url(), removed);
    Print(removed);
    if (!done) {
      return Fail(done.error());
    }
    if (context->settings.is_from_file) {
      Print("left " + context->settings.path + ", which is yours\n");
    }
  }
  return 0;
}

}  // namespace

Command Down() {
  return {.name = "down",
          .summary = "End the daemon or emulated host and every sandbox",
          .usage = "[--purge [--yes]]",
          .options = {{"purge", 0, "", "remove data, state and the stored key too, and list it"},
                      {"yes", 'y', "", "do not ask"}},
          .examples = {"space down", "space down --purge --yes"},
          .run = RunDown};
}

}  // namespace space::cli
