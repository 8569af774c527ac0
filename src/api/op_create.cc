#include <optional>
#include <utility>

#include "api/api.h"
#include "api/json_fields.h"
#include "api/network_check.h"
#include "api/operations.h"
#include "api/sandbox_json.h"

namespace space {
namespace {

// What differs between the doors to the one operation (E2B.md section 0).
struct Defaults {
  int64_t timeout_seconds;
  std::optional<bool> is_secure;  // nullopt: the request says, `false` when it does not
};
constexpr Defaults kV1 = {15, std::nullopt};
constexpr Defaults kV2 = {300, true};
constexpr Defaults kNative = {3600, true};

tl::unexpected<Error> NotYet(std::string_view field) {
  return Fail(ErrorCode::kInvalidArgument,
              std::string(field) + " is not supported by this version");
}

// Options that would be broken promises if they were ignored.
Result<void> RefuseUnsupported(const JsonFields& fields, const json::object& body) {
  if (fields.IsGiven("autoPause")) {
    return NotYet("autoPause");
  }
  SPACE_TRY(const std::optional<bool> pause_memory, fields.Flag("autoPauseMemory"), "");
  if (pause_memory == false) {
    return Fail(ErrorCode::kInvalidArgument, "autoPauseMemory: false needs autoPause: true");
  }
  SPACE_TRY(const json::object* resume, fields.Object("autoResume"), "");
  if (resume != nullptr && JsonFields(*resume).IsGiven("enabled")) {
    return NotYet("autoResume");
  }
  for (const std::string_view name : {"volumeMounts", "iam"}) {
    if (JsonFields(body).IsGiven(name)) {
      return NotYet(name);
    }
  }
  return {};
}

Result<int64_t> ReadTimeout(const JsonFields& fields, int64_t otherwise, const Config& config) {
  SPACE_TRY(const std::optional<int64_t> timeout, fields.Number("timeout"), "");
  const int64_t seconds = timeout.value_or(otherwise);
  if (seconds <= 0) {
    return Fail(ErrorCode::kInvalidArgument, "Timeout must be greater than 0");
  }
  if (seconds > config.max_timeout.count()) {
    return Fail(ErrorCode::kInvalidArgument, "Timeout cannot be greater than " +
                                                 std::to_string(config.max_timeout.count()) +
                                                 " seconds (limits.max_timeout)");
  }
  return seconds;
}

Result<void> CheckEnvironment(const TextMap& environment) {
  for (const auto& [name, value] : environment) {
    if (name.empty() || name.find_first_of(std::string_view("=\0", 2)) != std::string::npos ||
        value.find('\0') != std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument,
                  "validation error: envVars: not a name of a variable: " + name);
    }
  }
  return {};
}

Result<CreateSpec> ReadSpec(const ApiRequest& request, const Defaults& defaults,
                            const Config& config) {
  SPACE_TRY(const json::object body, BodyObject(request), "");
  const JsonFields fields(body);
  CreateSpec spec;
  spec.team_id = request.team_id;
  SPACE_TRY(const std::optional<std::string> name, fields.Text("templateID"), "");
  if (!name || name->empty()) {
    return Fail(ErrorCode::kInvalidArgument, "validation error: templateID is required");
  }
  spec.template_reference = *name;
  SPACE_TRY(spec.timeout_seconds, ReadTimeout(fields, defaults.timeout_seconds, config), "");
  SPACE_TRY(spec.size.vcpus, fields.Number("cpuCount"), "");
  SPACE_TRY(spec.size.memory_mib, fields.Number("memoryMB"), "");
  SPACE_TRY(spec.size.disk_mib, fields.Number("diskSizeMB"), "");
  SPACE_TRY(spec.metadata, fields.Map("metadata"), "");
  SPACE_TRY(spec.environment, fields.Map("envVars"), "");
  SPACE_TRY_VOID(CheckEnvironment(spec.environment), "");
  SPACE_TRY(spec.allow_internet, fields.Flag("allow_internet_access"), "");
  SPACE_TRY(const std::optional<bool> secure, fields.Flag("secure"), "");
  spec.is_secure = defaults.is_secure.value_or(secure.value_or(false));
  SPACE_TRY(NetworkOptions network, ReadNetwork(body), "");
  spec.is_public = network.is_public;
  spec.network = std::move(network.kept);
  if (!spec.is_public && !spec.is_secure) {
    return Fail(ErrorCode::kInvalidArgument,
                "network.allowPublicTraffic: false needs a secured sandbox (secure: true)");
  }
  SPACE_TRY_VOID(RefuseUnsupported(fields, body), "");
  return spec;
}

boost::asio::awaitable<Result<SandboxRecord>> Create(Api& api, ApiRequest request,
                                                     Defaults defaults) {
  SPACE_CO_TRY(CreateSpec spec, ReadSpec(request, defaults, api.config()), "");
  co_return co_await api.node().Create(std::move(spec));
}

OperationResult CreateE2b(Api& api, ApiRequest request, Defaults defaults) {
  SPACE_CO_TRY(const SandboxRecord record, co_await Create(api, std::move(request), defaults), "");
  co_return JsonResponse(201, json::serialize(SandboxJson(record, api.config().domain)));
}

}  // namespace

OperationResult CreateSandboxV1(Api& api, ApiRequest request) {
  return CreateE2b(api, std::move(request), kV1);
}

OperationResult CreateSandboxV2(Api& api, ApiRequest request) {
  return CreateE2b(api, std::move(request), kV2);
}

OperationResult CreateSandboxNative(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const SandboxRecord record, co_await Create(api, std::move(request), kNative), "");
  json::object body = NativeSandboxJson(record);
  body["envdAccessToken"] = record.envd_token;
  co_return JsonResponse(201, json::serialize(body));
}

}  // namespace space
