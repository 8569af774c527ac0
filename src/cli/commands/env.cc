#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunEnv(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "env takes no words"), "env");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "env");
  const Endpoint& endpoint = context->api.endpoint();
  if (endpoint.key.empty()) {
    return Fail(ErrorCode::kUnauthenticated,
                "no API key is known for " + endpoint.url() + "; `space up` stores one");
  }
  // E2B_DOMAIN is for getHost(PORT) alone: *.localhost needs no name server (RFC 6761, 6.3).
  Print("export E2B_API_KEY=" + endpoint.key + "\nexport E2B_API_URL=" + endpoint.url() +
        "\nexport E2B_SANDBOX_URL=" + endpoint.url() +
        "\nexport E2B_DOMAIN=localhost:" + std::to_string(endpoint.port) + "\n");
  return 0;
}

}  // namespace

Command Env() {
  return {.name = "env",
          .summary = "Print the variables with which an E2B SDK finds this daemon",
          .usage = "",
          .examples = {"eval \"$(space env)\"", "space env >> .env"},
          .run = RunEnv};
}

}  // namespace space::cli
