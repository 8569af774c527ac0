#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/machine_target.h"
#include "cli/transfer.h"

namespace space::cli {
namespace {

// The emulated host itself is a place too; no sandbox has this id.
constexpr std::string_view kMachineId = "machine";

asio::awaitable<Result<int>> Copy(Context& context, CopyPlace from, CopyPlace to, std::string user,
                                  EndSignals& signals) {
  const std::string id = from.sandbox.empty() ? to.sandbox : from.sandbox;
  std::shared_ptr<EnvdTarget> target;
  if (id == kMachineId) {
    target = MakeMachineTarget(context.settings);
  } else {
    auto found = co_await FindTarget(context.api, id);
    if (!found) {
      co_return Fail(std::move(found).error());
    }
    target = *found;
  }
  FilePlace place{from.sandbox.empty() ? to.path : from.path, std::move(user)};
  // Not as one conditional expression: GCC 12 mislays temporaries of a co_await inside it.
  Result<void> done;
  if (from.sandbox.empty()) {
    done = co_await CopyIn(target, from.path, std::move(place), signals);
  } else {
    done = co_await CopyOut(target, std::move(place), to.path, signals);
  }
  if (done) {
    co_return 0;
  }
  // A signal that has ended tar is counted by the event loop's next turn.
  co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  if (signals.count() > 0) {
    co_return kExitSignalBase + signals.first();
  }
  co_return Fail(done.error());
}

Result<int> RunCp(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 2, "cp needs a source and a target"), "cp");
  const CopyPlace from = ParseCopyPlace(invocation.arguments.words()[0]);
  const CopyPlace to = ParseCopyPlace(invocation.arguments.words()[1]);
  if (from.sandbox.empty() == to.sandbox.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "cp needs one place here and one in a sandbox, as SANDBOX:PATH");
  }
  const std::string& remote = from.sandbox.empty() ? to.path : from.path;
  if (remote.empty() || (from.is_stream() && remote.ends_with('/'))) {
    return Fail(ErrorCode::kInvalidArgument, "cp: the path in the sandbox is missing");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "cp");
  EndSignals signals(context->io);
  const std::string user = invocation.arguments.Value("user").value_or("root");
  return context->Run(Copy(*context, from, to, user, signals));
}

}  // namespace

Command Cp() {
  return {
      .name = "cp",
      .summary = "Copy a file or folder into or out of a sandbox (- is standard input or output)",
      .usage = "[-u USER] SOURCE SANDBOX:PATH | SANDBOX:PATH TARGET",
      .options = {{"user", 'u', "NAME", "owner in the sandbox (default: root)"}},
      .examples = {"space cp data.csv $id:/root/", "space cp $id:/var/log/app.log - | less"},
      .run = RunCp};
}

}  // namespace space::cli
