#include <boost/json.hpp>

#include "base/units.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/progress.h"

namespace space::cli {
namespace {

std::string NamesOf(const boost::json::object& snapshot) {
  std::string text;
  if (const boost::json::value* names = snapshot.if_contains("names"); names && names->is_array()) {
    for (const boost::json::value& name : names->get_array()) {
      text += (text.empty() ? "" : ",") + (name.is_string() ? std::string(name.get_string()) : "");
    }
  }
  return text.empty() ? "-" : text;
}

// Microseconds of a member of `timings` as milliseconds; "-" when it was not measured.
std::string Millis(const boost::json::object& snapshot, std::string_view key) {
  const boost::json::value* timings = snapshot.if_contains("timings");
  if (timings == nullptr || !timings->is_object() || !timings->get_object().contains(key)) {
    return "-";
  }
  const int64_t micros = JsonNumber(timings->get_object(), key);
  return std::to_string(micros / 1000) + "." + std::to_string(micros % 1000 / 100) + " ms";
}

asio::awaitable<Result<int>> CreateOne(Context& context, std::string id, std::string name,
                                       bool as_json) {
  const Progress progress(context.io.get_executor(), "writing the snapshot of " + id);
  SPACE_CO_TRY(boost::json::object snapshot,
               co_await context.api.CreateSnapshot(id, std::move(name)),
               "snapshot of sandbox " + id);
  const std::string snapshot_id = JsonText(snapshot, "snapshotID");
  if (as_json) {
    SPACE_CO_TRY(snapshot, co_await context.api.Snapshot(snapshot_id), "snapshot " + snapshot_id);
  }
  Print((as_json ? boost::json::serialize(snapshot) : snapshot_id) + "\n");
  co_return 0;
}

asio::awaitable<Result<int>> RemoveAll(Context& context, std::vector<std::string> ids) {
  int failures = 0;
  for (const std::string& id : ids) {
    const auto removed = co_await context.api.DeleteSnapshot(id);
    if (!removed) {
      Say(id + ": " + removed.error().message());
      ++failures;
      continue;
    }
    Print(id + "\n");
  }
  co_return failures == 0 ? 0 : kExitOurFailure;
}

Result<int> RunCreate(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "snapshot create needs one sandbox"), "snapshot create");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "snapshot create");
  return context->Run(CreateOne(*context, invocation.arguments.words().front(),
                                invocation.arguments.Value("name").value_or(""),
                                invocation.arguments.Has("json")));
}

Result<int> RunLs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "snapshot ls takes no words"), "snapshot ls");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "snapshot ls");
  SPACE_TRY(const auto list,
            context->Run(context->api.Snapshots(invocation.arguments.Value("of").value_or(""))),
            "list snapshots");
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(boost::json::array(list.begin(), list.end())) + "\n");
    return 0;
  }
  if (invocation.arguments.Has("quiet")) {
    for (const boost::json::object& snapshot : list) {
      Print(JsonText(snapshot, "snapshotID") + "\n");
    }
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {
      {"SNAPSHOT", "NAMES", "OF", "CPUS", "MEMORY", "PAUSE", "CREATED"}};
  for (const boost::json::object& snapshot : list) {
    rows.push_back({JsonText(snapshot, "snapshotID"), NamesOf(snapshot),
                    JsonText(snapshot, "sandboxID"), JsonText(snapshot, "cpuCount"),
                    JsonText(snapshot, "memoryMB") + " MiB", Millis(snapshot, "pauseUs"),
                    JsonText(snapshot, "createdAt")});
  }
  Print(FormatTable(rows));
  return 0;
}

Result<int> RunRm(const Invocation& invocation) {
  const std::vector<std::string>& ids = invocation.arguments.words();
  if (ids.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "name what to delete; see space snapshot rm --help");
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "rm");
  return context->Run(RemoveAll(*context, ids));
}

}  // namespace

Command SnapshotCreate() {
  return {.name = "snapshot create",
          .summary = "Keep a sandbox as it is now, while it goes on; prints the snapshot's id",
          .usage = "[OPTIONS] SANDBOX",
          .options = {{"name", 0, "NAME[:TAG]", "a name to create sandboxes by"},
                      {"json", 0, "", "print all that is known of it, with its pause times"}},
          .examples = {"space run -T $(space snapshot create $id) ./try.sh",
                       "space snapshot create --name warm --json $id | jq .timings"},
          .run = RunCreate};
}

Command SnapshotLs() {
  return {.name = "snapshot ls",
          .summary = "List the team's snapshots",
          .usage = "[OPTIONS]",
          .options = {{"of", 0, "SANDBOX", "only those of this sandbox"},
                      {"quiet", 'q', "", "ids only"},
                      {"json", 0, "", "print one JSON list"}},
          .examples = {"space snapshot ls", "space snapshot ls --of $id --json | jq '.[].timings'"},
          .run = RunLs};
}

// A snapshot is a template: both names lead here.
Command TemplateRm() {
  return {.name = "template rm",
          .summary = "Delete templates that no sandbox stands on (the operator's stay)",
          .usage = "TEMPLATE...",
          .examples = {"space template rm mine", "space template rm team/mine:v1"},
          .run = RunRm};
}

Command SnapshotRm() {
  return {.name = "snapshot rm",
          .summary = "Delete snapshots that no sandbox stands on",
          .usage = "SNAPSHOT...",
          .examples = {"space snapshot rm warm", "space snapshot rm $(space snapshot ls -q)"},
          .run = RunRm};
}

}  // namespace space::cli
