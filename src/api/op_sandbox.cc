#include <algorithm>
#include <utility>

#include "api/api.h"
#include "api/json_fields.h"
#include "api/operations.h"
#include "api/sandbox_json.h"
#include "api/timeout_field.h"

namespace space {
namespace {

constexpr int64_t kMinRefreshSeconds = 15;
constexpr int64_t kMaxRefreshSeconds = 3600;

}  // namespace

OperationResult GetSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const SandboxRecord record, api.node().FindShown(request.team_id, id), "");
  co_return JsonResponse(200, json::serialize(SandboxDetailJson(record, api.config().domain)));
}

OperationResult GetSandboxNative(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const SandboxRecord record, api.node().FindAny(request.team_id, id), "");
  co_return JsonResponse(200, json::serialize(NativeSandboxJson(record)));
}

OperationResult GetSandboxLogs(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const SandboxLogs logs, api.node().Logs(request.team_id, id), "");
  ApiResponse response;
  // The guest writes the serial log: as plain text it cannot become a page of this origin.
  response.content_type = "text/plain; charset=utf-8";
  response.headers.push_back({"X-Content-Type-Options", "nosniff"});
  const auto source = request.target.Query("source").value_or("serial");
  if (source != "serial" && source != "vmm") {
    co_return Fail(ErrorCode::kInvalidArgument, "source must be serial or vmm, not", source);
  }
  response.body = source == "vmm" ? logs.vmm : logs.serial;
  co_return response;
}

OperationResult KillSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY_VOID(co_await api.node().Kill(request.team_id, id), "");
  co_return NoContent();
}

OperationResult SetSandboxTimeout(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  SPACE_CO_TRY(const std::optional<int64_t> seconds, JsonFields(body).Number("timeout"), "");
  if (!seconds || *seconds < 0) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "validation error: timeout must be a number of seconds, 0 or more");
  }
  SPACE_CO_TRY_VOID(CheckLongest(*seconds, api.config()), "");
  SPACE_CO_TRY_VOID(api.node().SetTimeout(request.team_id, id, *seconds), "");
  co_return NoContent();
}

OperationResult RefreshSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  SPACE_CO_TRY(const std::optional<int64_t> seconds, JsonFields(body).Number("duration"), "");
  const int64_t asked = seconds.value_or(0);
  if (asked < 0 || asked > kMaxRefreshSeconds) {
    co_return Fail(ErrorCode::kInvalidArgument,
                   "validation error: duration must be from 0 to 3600");
  }
  SPACE_CO_TRY_VOID(
      api.node().ExtendTimeout(request.team_id, id, std::max(kMinRefreshSeconds, asked)), "");
  co_return NoContent();
}

}  // namespace space
