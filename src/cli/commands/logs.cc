#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunLogs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "logs needs one sandbox"), "logs");
  const std::string id = invocation.arguments.words().front();
  const std::string source = invocation.arguments.Value("source").value_or("serial");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "logs");
  std::string target = "/space/v1/sandboxes/" + http::PercentEncode(id) +
                       "/logs?source=" + http::PercentEncode(source);
  SPACE_TRY(const http::SimpleResponse answer,
            context->Run(context->api.Ask("GET", std::move(target), std::nullopt)),
            "sandbox " + id);
  Print(answer.body);
  return 0;
}

}  // namespace

Command Logs() {
  return {
      .name = "logs",
      .summary = "Show a sandbox's console, also of a dead one",
      .usage = "[--source serial|vmm] SANDBOX",
      .options = {{"source", 0, "serial|vmm", "the guest's console (default) or the VMM's log"}},
      .examples = {"space logs $id", "space logs --source vmm $id"},
      .run = RunLogs};
}

}  // namespace space::cli
