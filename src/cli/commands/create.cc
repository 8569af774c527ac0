#include "cli/build_watch.h"
#include "cli/commands/commands.h"
#include "cli/context.h"
#include "cli/sandbox_options.h"

namespace space::cli {
namespace {

asio::awaitable<Result<int>> CreateOne(Context& context, boost::json::object body) {
  SPACE_CO_TRY(const boost::json::object sandbox,
               co_await CreateWatched(context.io, context.api, std::move(body)), "create sandbox");
  Print(JsonText(sandbox, "sandboxID") + "\n");
  co_return 0;
}

Result<int> RunCreate(const Invocation& invocation) {
  SPACE_TRY_VOID(NeedWords(invocation, 0, "create takes no words"), "create");
  SPACE_TRY(boost::json::object body, MakeCreateBody(invocation.arguments), "create");
  std::map<std::string, std::string> environment;
  for (const std::string& entry : invocation.arguments.Values("env")) {
    SPACE_TRY_VOID(AddVariable(entry, environment), "create");
  }
  if (!environment.empty()) {
    boost::json::object variables;
    for (const auto& [name, value] : environment) {
      variables[name] = value;
    }
    body["envVars"] = std::move(variables);
  }
  SPACE_TRY(const std::unique_ptr<Context> context, MakeContext(invocation), "create");
  return context->Run(CreateOne(*context, std::move(body)));
}

}  // namespace

Command Create() {
  return {.name = "create",
          .summary = "Make a sandbox and print its id",
          .usage = "[OPTIONS]",
          .options = std::vector<OptionSpec>{{"env", 'e', "NAME=VALUE",
                                              "variable of every command in it (repeatable)"}} +
                     SizeOptions(),
          .examples = {"id=$(space create --timeout 2h)",
                       "space create -T $(space snapshot create $id) --timeout 10m"},
          .run = RunCreate};
}

}  // namespace space::cli
