#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/progress.h"
#include "cli/sandbox_options.h"

namespace space::cli {
namespace {

asio::awaitable<Result<int>> PauseAll(Context& context, std::vector<std::string> ids,
                                      bool with_memory) {
  int failures = 0;
  for (const std::string& id : ids) {
    const Progress progress(context.io.get_executor(), "pausing sandbox " + id);
    const auto paused = co_await context.api.Pause(id, with_memory);
    if (!paused) {
      Say("sandbox " + id + ": " + paused.error().message());
      ++failures;
      continue;
    }
    Print(id + "\n");
  }
  co_return failures == 0 ? 0 : kExitOurFailure;
}

asio::awaitable<Result<int>> ResumeAll(Context& context, std::vector<std::string> ids,
                                       int64_t seconds, bool with_memory) {
  int failures = 0;
  for (const std::string& id : ids) {
    const Progress progress(context.io.get_executor(), "resuming sandbox " + id);
    const auto resumed = co_await context.api.Resume(id, seconds, with_memory);
    if (!resumed) {
      Say("sandbox " + id + ": " + resumed.error().message());
      ++failures;
      continue;
    }
    if (resumed->was_running) {
      Say("sandbox " + id + " was running already");
    }
    Print(id + "\n");
  }
  co_return failures == 0 ? 0 : kExitOurFailure;
}

Result<int> RunPause(const Invocation& invocation) {
  const std::vector<std::string>& ids = invocation.arguments.words();
  if (ids.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "pause needs sandboxes; see space pause --help");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "pause");
  return context->Run(PauseAll(*context, ids, !invocation.arguments.Has("disk-only")));
}

Result<int> RunResume(const Invocation& invocation) {
  const std::vector<std::string>& ids = invocation.arguments.words();
  if (ids.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "resume needs sandboxes; see space resume --help");
  }
  int64_t seconds = kDefaultLifeSeconds;
  if (const auto text = invocation.arguments.Value("timeout")) {
    SPACE_TRY(seconds, ReadSeconds("--timeout", *text), "resume");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "resume");
  return context->Run(ResumeAll(*context, ids, seconds, !invocation.arguments.Has("reboot")));
}

}  // namespace

Command Pause() {
  return {.name = "pause",
          .summary = "Put sandboxes to sleep: memory and disk are kept, the VM is not",
          .usage = "[--disk-only] SANDBOX...",
          .options = {{"disk-only", 0, "", "drop the memory: it boots when it is resumed"}},
          .examples = {"space pause $id", "space pause --disk-only $(space ls -q)"},
          .run = RunPause};
}

Command Resume() {
  return {.name = "resume",
          .summary = "Let paused sandboxes go on where they stood",
          .usage = "[OPTIONS] SANDBOX...",
          .options = {{"timeout", 0, "DURATION", "time to live from now (default: 1h)"},
                      {"reboot", 0, "", "drop the memory and boot from the disk"}},
          .examples = {"space resume $id", "space resume --timeout 2h --reboot $id"},
          .run = RunResume};
}

}  // namespace space::cli
