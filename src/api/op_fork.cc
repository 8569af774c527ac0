// Copies of running sandboxes (E2B.md 2.7).
#include <utility>

#include "api/api.h"
#include "api/errors.h"
#include "api/json_fields.h"
#include "api/operations.h"
#include "api/sandbox_json.h"
#include "api/timeout_field.h"

namespace space {
namespace {

constexpr int64_t kForkSeconds = 15;
constexpr int64_t kMaxForks = 100;

boost::asio::awaitable<Result<ForkReport>> Fork(Api& api, ApiRequest request) {
  SPACE_CO_TRY(std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  const JsonFields fields(body);
  ForkSpec spec;
  SPACE_CO_TRY(spec.timeout_seconds, ReadTimeout(fields, kForkSeconds, api.config()), "");
  SPACE_CO_TRY(const std::optional<int64_t> count, fields.Number("count"), "");
  spec.count = count.value_or(1);
  if (spec.count < 1 || spec.count > kMaxForks) {
    co_return Fail(
        ErrorCode::kInvalidArgument,
        "validation error: count must be from 1 to 100, not " + std::to_string(spec.count));
  }
  co_return co_await api.node().Fork(std::move(request.team_id), std::move(id), spec);
}

json::array ResultsJson(const ForkReport& report, const std::string& domain) {
  json::array list;
  for (const ForkOutcome& child : report.children) {
    json::object result;
    if (child) {
      result["sandbox"] = SandboxJson(*child, domain);
    } else {
      result["error"] = {{"code", HttpStatusOf(child.error().code())},
                         {"message", child.error().message()}};
    }
    list.emplace_back(std::move(result));
  }
  return list;
}

}  // namespace

OperationResult ForkSandbox(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ForkReport report, co_await Fork(api, std::move(request)), "");
  co_return JsonResponse(201, json::serialize(ResultsJson(report, api.config().domain)));
}

OperationResult ForkSandboxNative(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ForkReport report, co_await Fork(api, std::move(request)), "");
  json::object body;
  body["results"] = ResultsJson(report, api.config().domain);
  body["timings"] = MeasuresJson(report.measures);
  co_return JsonResponse(201, json::serialize(body));
}

}  // namespace space
