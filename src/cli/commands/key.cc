#include <boost/json.hpp>

#include "cli/commands/commands.h"
#include "cli/context.h"

namespace space::cli {
namespace {

Result<int> RunCreate(const Invocation& invocation) {
  if (invocation.arguments.words().size() > 1) {
    return Fail(ErrorCode::kInvalidArgument, "key create takes one name; see --help");
  }
  boost::json::object body = {{"scope", invocation.arguments.Value("scope").value_or("use")}};
  if (!invocation.arguments.words().empty()) {
    body["name"] = invocation.arguments.words().front();
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "key create");
  std::optional<boost::json::value> sent = std::move(body);
  SPACE_TRY(const boost::json::value made,
            context->Run(context->api.Call("POST", "/space/v1/keys", std::move(sent))),
            "create key");
  if (!made.is_object()) {
    return Fail(ErrorCode::kInternal, "daemon's answer is not a JSON object");
  }
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(made) + "\n");
    return 0;
  }
  // Shown this once: only its hash is kept.
  Print(JsonText(made.get_object(), "key") + "\n");
  return 0;
}

Result<int> RunLs(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "key ls takes no words"), "key ls");
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "key ls");
  SPACE_TRY(const boost::json::value keys,
            context->Run(context->api.Call("GET", "/space/v1/keys", std::nullopt)), "list keys");
  if (invocation.arguments.Has("json")) {
    Print(boost::json::serialize(keys) + "\n");
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"KEY", "NAME", "SCOPE", "CREATED", "REVOKED"}};
  if (const boost::json::array* list = keys.if_array()) {
    for (const boost::json::value& entry : *list) {
      if (const boost::json::object* key = entry.if_object()) {
        rows.push_back({JsonText(*key, "id"), JsonText(*key, "name"), JsonText(*key, "scope"),
                        JsonText(*key, "createdAt"), JsonText(*key, "revokedAt")});
      }
    }
  }
  Print(FormatTable(rows));
  return 0;
}

Result<int> RunRevoke(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 1, "key revoke needs one key id"), "key revoke");
  const std::string id = invocation.arguments.words().front();
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "key revoke");
  SPACE_TRY(const boost::json::value gone,
            context->Run(context->api.Call("DELETE", "/space/v1/keys/" + http::PercentEncode(id),
                                           std::nullopt)),
            "key " + id);
  (void)gone;
  Print(id + "\n");
  return 0;
}

}  // namespace

Command KeyCreate() {
  return {.name = "key create",
          .summary = "Make an API key and print it (it is shown only now)",
          .usage = "[OPTIONS] [NAME]",
          .options = {{"scope", 0, "use|approve|admin", "what the key may do (default: use)"},
                      {"json", 0, "", "print one JSON object"}},
          .examples = {"space key create ci", "space key create --scope admin backup"},
          .run = RunCreate};
}

Command KeyLs() {
  return {.name = "key ls",
          .summary = "List the team's API keys",
          .usage = "[--json]",
          .options = {{"json", 0, "", "print one JSON list"}},
          .examples = {"space key ls", "space key ls --json"},
          .run = RunLs};
}

Command KeyRevoke() {
  return {.name = "key revoke",
          .summary = "Make a key invalid at once",
          .usage = "KEY",
          .examples = {"space key revoke 0f3a9c21",
                       "space key revoke $(space key ls --json | jq -r '.[1].id')"},
          .run = RunRevoke};
}

}  // namespace space::cli
