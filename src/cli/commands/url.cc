#include <charconv>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunUrl(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 2, "url needs a sandbox and a port"), "url");
  const std::vector<std::string>& words = invocation.arguments.words();
  uint16_t port = 0;
  const char* end = words[1].data() + words[1].size();
  if (std::from_chars(words[1].data(), end, port) != std::from_chars_result{end, std::errc()} ||
      port == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the port must be from 1 to 65535, not", words[1]);
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "url");
  SPACE_TRY(const boost::json::object sandbox, context->Run(context->api.Sandbox(words[0])),
            "sandbox " + words[0]);
  // Names below localhost are this machine's, to browsers and curl (RFC 6761, 6.3).
  Print("http://" + std::to_string(port) + "-" + JsonText(sandbox, "sandboxID") +
        ".localhost:" + std::to_string(context->api.endpoint().port) + "\n");
  return 0;
}

}  // namespace

Command Url() {
  return {.name = "url",
          .summary = "Print the address of a port of a sandbox, for browsers on this machine",
          .usage = "SANDBOX PORT",
          .examples = {"space url $id 8080", "curl \"$(space url $id 8080)/\""},
          .run = RunUrl};
}

}  // namespace space::cli
