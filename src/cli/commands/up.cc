#include "cli/commands/commands.h"
#include "cli/credentials.h"
#include "cli/daemon.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

constexpr int kApiLimitMs = 120'000;

bool KeyWorks(Context& context) {
  return !context.api.endpoint().key.empty() &&
         context.Run(context.api.Ask("GET", "/space/v1/status", std::nullopt)).has_value();
}

Result<void> StartMachine(Context& context) {
  machine::StartOptions options;
  options.programs = machine::ProgramFolder();
  options.progress = Say;
  SPACE_TRY(const machine::RunState state, machine::Start(context.settings, options),
            "emulated host");
  (void)state;
  return AwaitApi(context, kApiLimitMs);
}

Result<void> StoreFirstKey(Context& context, bool is_emulated) {
  SPACE_TRY(const std::string key, FetchAdminKey(context, is_emulated), "key");
  SPACE_TRY_VOID(StoreKey(context.api.endpoint().url(), key), "key");
  Endpoint endpoint = context.api.endpoint();
  endpoint.key = key;
  context.api = Api(std::move(endpoint));
  if (!KeyWorks(context)) {
    return Fail(ErrorCode::kUnauthenticated, "the daemon at " + context.api.endpoint().url() +
                                                 " does not take the key of its data folder");
  }
  Say("key stored in " + CredentialsPath());
  return {};
}

Result<int> RunUp(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "up takes no words"), "up");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "up");
  const std::string url = context->api.endpoint().url();
  const bool has_machine = machine::Running(context->settings).has_value();
  const bool has_local = LocalDaemonPid(context->settings).has_value();
  bool is_emulated = has_machine;
  if (has_machine) {
    SPACE_TRY_VOID(AwaitApi(*context, kApiLimitMs), "up");
  } else if (has_local) {
    SPACE_TRY_VOID(AwaitApi(*context, kApiLimitMs), "up");
  } else {
    const machine::HostChoice choice = machine::ChooseHost(context->settings.machine.mode);
    is_emulated = choice.is_emulated;
    if (is_emulated && IsFirstTime("emulated")) {
      Say("KVM of this host cannot run sandboxes (" + choice.reason +
          "), so they run in an emulated host: the same, but many times slower (told once)");
    }
    SPACE_TRY_VOID(is_emulated ? StartMachine(*context) : StartLocalDaemon(*context), "up");
  }
  if (!KeyWorks(*context)) {
    SPACE_TRY_VOID(StoreFirstKey(*context, is_emulated), "up");
  }
  Say(std::string("SPACE runs at ") + url + (is_emulated ? " (emulated host)" : ""));
  return 0;
}

}  // namespace

Command Up() {
  return {.name = "up",
          .summary = "Start the daemon here, or in the emulated host where KVM is not usable",
          .usage = "",
          .examples = {"space up", "space --machine on up"},
          .run = RunUp};
}

}  // namespace space::cli
