#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
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
      " with every sandbox, key and image in them, and what quickstart.sh installed and built" +
      " (--keep-build leaves that). Go on? [y/N]");
  std::string answer;
  std::getline(std::cin, answer);
  if (answer != "y" && answer != "yes") {
    return Fail(ErrorCode::kConflict, "nothing was removed");
  }
  return {};
}

// quickstart.sh of the checkout that this program was built in, when it has set up `data_dir`; else
// empty.
std::string QuickstartOf(const std::string& data_dir) {
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  // build/release/bin/space
  const std::filesystem::path build = program.parent_path().parent_path().parent_path();
  std::ifstream note(build / "quickstart-data-dir");
  std::string set_up;
  std::getline(note, set_up);
  return set_up == data_dir ? (build.parent_path() / "quickstart.sh").string() : std::string();
}

// Packages, build/ and bin/: the script that made them removes them. Replaces this process.
Result<int> UndoQuickstart(const std::string& script) {
  std::string undo = "--undo";
  std::string path = script;
  std::array<char*, 3> arguments = {path.data(), undo.data(), nullptr};
  ::execv(path.c_str(), arguments.data());
  return FailErrno("run quickstart.sh --undo", script);
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
    const std::string quickstart = QuickstartOf(context->settings.data_dir);
    std::string removed;
    const auto done = PurgeAll(context->settings, context->api.endpoint().url(), removed);
    Print(removed);
    if (!done) {
      return Fail(done.error());
    }
    if (context->settings.is_from_file) {
      Print("left " + context->settings.path + ", which is yours\n");
    }
    if (!quickstart.empty() && !invocation.arguments.Has("keep-build")) {
      return UndoQuickstart(quickstart);
    }
  }
  return 0;
}

}  // namespace

Command Down() {
  return {
      .name = "down",
      .summary = "End the daemon or emulated host and every sandbox",
      .usage = "[--purge [--keep-build] [--yes]]",
      .options = {{"purge", 0, "",
                   "remove data, state and the stored key too, and what quickstart.sh installed "
                   "and built"},
                  {"keep-build", 0, "", "leave packages, build/ and bin/"},
                  {"yes", 'y', "", "do not ask"}},
      .examples = {"space down", "space down --purge --keep-build"},
      .run = RunDown};
}

}  // namespace space::cli
