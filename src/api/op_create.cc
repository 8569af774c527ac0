#include <optional>
#include <utility>

#include "api/api.h"
#include "api/json_fields.h"
#include "api/network_check.h"
#include "api/operations.h"
#include "api/sandbox_json.h"
#include "api/timeout_field.h"

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

// What happens when its time is over (E2B.md 2.4).
Result<void> ReadLifecycle(const JsonFields& fields, CreateSpec& spec) {
  SPACE_TRY(const std::optional<bool> pauses, fields.Flag("autoPause"), "");
  SPACE_TRY(const std::optional<bool> keeps_memory, fields.Flag("autoPauseMemory"), "");
  SPACE_TRY(const json::object* resume, fields.Object("autoResume"), "");
  if (resume != nullptr) {
    SPACE_TRY(const std::optional<bool> enabled, JsonFields(*resume, "autoResume.").Flag("enabled"),
              "");
    spec.auto_resume = enabled.value_or(false);
  }
  spec.auto_pause = pauses.value_or(false);
  spec.auto_pause_keeps_memory = keeps_memory.value_or(true);
  if (!spec.auto_pause_keeps_memory && !spec.auto_pause) {
    return Fail(ErrorCode::kInvalidArgument, "autoPauseMemory: false needs autoPause: true");
  }
  if (!spec.auto_pause_keeps_memory && spec.auto_resume) {
    return Fail(ErrorCode::kInvalidArgument,
                "autoPauseMemory: false cannot be combined with autoResume.enabled: a sandbox that "
                "boots anew is not woken by traffic");
  }
  return {};
}

// Options that would be broken promises if they were ignored.
Result<void> RefuseUnsupported(const JsonFields& fields) {
  for (const std::string_view name : {"volumeMounts", "iam"}) {
    if (fields.IsGiven(name)) {
      return NotYet(name);
    }
  }
  return {};
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
  SPACE_TRY_VOID(ReadLifecycle(fields, spec), "");
  SPACE_TRY_VOID(RefuseUnsupported(fields), "");
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
