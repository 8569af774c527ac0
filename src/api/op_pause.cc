// Pause, resume and connect (E2B.md 2.6).
#include <utility>

#include "api/api.h"
#include "api/json_fields.h"
#include "api/operations.h"
#include "api/sandbox_json.h"
#include "api/timeout_field.h"

namespace space {
namespace {

constexpr int64_t kConnectSeconds = 300;
constexpr int64_t kResumeSeconds = 15;

struct Defaults {
  int64_t timeout_seconds;
  bool refuses_running;
};

boost::asio::awaitable<Result<ResumeOutcome>> Resume(Api& api, ApiRequest request,
                                                     Defaults defaults) {
  SPACE_CO_TRY(std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  const JsonFields fields(body);
  ResumeSpec spec;
  spec.refuses_running = defaults.refuses_running;
  // Before the look-up: a timeout that is too long is refused even for an unknown sandbox.
  SPACE_CO_TRY(spec.timeout_seconds, ReadTimeout(fields, defaults.timeout_seconds, api.config()),
               "");
  SPACE_CO_TRY(const std::optional<bool> memory, fields.Flag("memory"), "");
  spec.keeps_memory = memory.value_or(true);
  co_return co_await api.node().Resume(std::move(request.team_id), std::move(id), spec);
}

}  // namespace

OperationResult PauseSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  SPACE_CO_TRY(const std::optional<bool> memory, JsonFields(body).Flag("memory"), "");
  SPACE_CO_TRY_VOID(
      co_await api.node().Pause(std::move(request.team_id), std::move(id), memory.value_or(true)),
      "");
  co_return NoContent();
}

OperationResult ConnectSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ResumeOutcome outcome,
               co_await Resume(api, std::move(request), {kConnectSeconds, false}), "");
  co_return JsonResponse(outcome.was_running ? 200 : 201,
                         json::serialize(SandboxJson(outcome.record, api.config().domain)));
}

OperationResult ResumeSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ResumeOutcome outcome,
               co_await Resume(api, std::move(request), {kResumeSeconds, true}), "");
  co_return JsonResponse(201, json::serialize(SandboxJson(outcome.record, api.config().domain)));
}

}  // namespace space
