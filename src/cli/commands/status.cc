#include <boost/json.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/daemon.h"
#include "machine/machine.h"

namespace space::cli {
namespace {

Result<int> RunStatus(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "status takes no words"), "status");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "status");
  const auto machine = machine::Running(context->settings);
  const auto status = context->Run(context->api.Call("GET", "/space/v1/status", std::nullopt));
  boost::json::object out = {{"url", context->api.endpoint().url()},
                             {"running", status.has_value()},
                             {"emulatedHost", machine.has_value()}};
  if (status) {
    out["daemon"] = *status;
  } else {
    out["error"] = status.error().message();
  }
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(out) + "\n");
    return status ? 0 : kExitOurFailure;
  }
  Print("address    " + context->api.endpoint().url() + "\n");
  Print(std::string("host       ") +
        (machine ? "emulated, " + FormatSize(machine->memory_bytes) : "this one") + "\n");
  if (!status) {
    Print("daemon     not usable: " + status.error().message() + "\n");
    return kExitOurFailure;
  }
  if (const boost::json::object* daemon = status->if_object()) {
    Print("daemon     " + JsonText(*daemon, "version") + ", since " +
          JsonText(*daemon, "startedAt") + "\n");
    if (const auto* counts = daemon->if_contains("sandboxes"); counts && counts->is_object()) {
      const std::string paused = JsonText(counts->get_object(), "paused");
      Print("sandboxes  " + JsonText(counts->get_object(), "running") + " running, " +
            (paused.empty() ? "" : paused + " paused, ") + "limit " +
            JsonText(counts->get_object(), "limit") + "\n");
    }
    if (const auto* pool = daemon->if_contains("pool"); pool && pool->is_object()) {
      Print("pool       " + JsonText(pool->get_object(), "ready") + " ready, " +
            JsonText(pool->get_object(), "making") + " in the making, of " +
            JsonText(pool->get_object(), "templates") + " templates\n");
    }
    Print("network    " + JsonText(*daemon, "network") + "\n");
  }
  return 0;
}

}  // namespace

Command Status() {
  return {.name = "status",
          .summary = "Tell whether the daemon answers and what runs",
          .usage = "[--json]",
          .options = {{"json", 0, "", "print one JSON object"}},
          .examples = {"space status", "space status --json | jq .daemon.sandboxes"},
          .run = RunStatus};
}

}  // namespace space::cli
