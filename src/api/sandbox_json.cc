#include "api/sandbox_json.h"

#include "catalog/key_store.h"
#include "node/time_text.h"

namespace space {
namespace {

json::value TextOrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

json::object MapJson(const TextMap& map) {
  json::object object;
  for (const auto& [key, value] : map) {
    object[key] = value;
  }
  return object;
}

}  // namespace

json::object SandboxJson(const SandboxRecord& record, const std::string& domain) {
  json::object object;
  object["templateID"] = record.template_id;
  object["sandboxID"] = record.id;
  object["clientID"] = kClientId;
  object["alias"] = record.alias;
  object["envdVersion"] = record.envd_version;
  if (!record.envd_token.empty()) {
    object["envdAccessToken"] = record.envd_token;
  }
  if (!record.traffic_token.empty()) {
    object["trafficAccessToken"] = record.traffic_token;
  }
  object["domain"] = TextOrNull(domain);
  return object;
}

json::object ListedSandboxJson(const SandboxRecord& record) {
  json::object object;
  object["templateID"] = record.template_id;
  object["alias"] = record.alias;
  object["sandboxID"] = record.id;
  object["clientID"] = kClientId;
  object["startedAt"] = FormatTime(record.started_at);
  object["endAt"] = FormatTime(record.end_at);
  object["cpuCount"] = record.vcpus;
  object["memoryMB"] = record.memory_mib;
  object["diskSizeMB"] = record.disk_mib;
  if (!record.metadata.empty()) {
    object["metadata"] = MapJson(record.metadata);
  }
  object["state"] = ShownStateName(ShownAs(record.state));
  object["envdVersion"] = record.envd_version;
  object["volumeMounts"] = json::array();
  return object;
}

json::object SandboxDetailJson(const SandboxRecord& record, const std::string& domain) {
  json::object object = ListedSandboxJson(record);
  if (!record.envd_token.empty()) {
    object["envdAccessToken"] = record.envd_token;
  }
  object["domain"] = TextOrNull(domain);
  object["allowInternetAccess"] =
      record.allow_internet ? json::value(*record.allow_internet) : json::value(nullptr);
  if (!record.network.empty()) {
    if (auto network = ParseJson(record.network)) {
      object["network"] = *std::move(network);
    }
  }
  object["lifecycle"] = {{"onTimeout", record.auto_pause ? "pause" : "kill"},
                         {"autoResume", record.auto_resume}};
  return object;
}

json::object NativeSandboxJson(const SandboxRecord& record) {
  json::object object;
  object["sandboxID"] = record.id;
  object["templateID"] = record.template_id;
  object["state"] = SandboxStateName(record.state);
  object["cpuCount"] = record.vcpus;
  object["memoryMB"] = record.memory_mib;
  object["diskSizeMB"] = record.disk_mib;
  object["createdAt"] = FormatTime(record.created_at);
  object["startedAt"] = FormatTime(record.started_at);
  object["endAt"] = FormatTime(record.end_at);
  object["endedAt"] =
      record.ended_at ? json::value(FormatTime(*record.ended_at)) : json::value(nullptr);
  object["metadata"] = MapJson(record.metadata);
  object["envdVersion"] = record.envd_version;
  object["agentVersion"] = record.agent_version;
  object["kernelRelease"] = record.kernel_release;
  object["secure"] = !record.envd_token.empty();
  object["vmmPid"] = record.vmm_pid;
  object["timings"] = {
      {"launchUs", record.launch_us}, {"helloUs", record.hello_us}, {"readyUs", record.ready_us}};
  object["autoPause"] = record.auto_pause;
  object["autoPauseMemory"] = record.auto_pause_keeps_memory;
  object["autoResume"] = record.auto_resume;
  object["sourceID"] = TextOrNull(record.source_id);
  object["origin"] = TextOrNull(record.origin);
  object["lastSnapshot"] = MeasuresJson(record.last_measures);
  object["deathReason"] = TextOrNull(record.death_reason);
  object["deathDetail"] = TextOrNull(record.death_detail);
  return object;
}

json::object MeasuresJson(const std::string& measures) {
  auto value = measures.empty() ? json::value() : ParseJson(measures).value_or(json::value());
  return value.is_object() ? std::move(value.get_object()) : json::object();
}

json::object KeyJson(const ApiKey& key) {
  json::object object;
  object["id"] = key.id;
  object["name"] = key.name;
  object["scope"] = ScopeName(key.scope);
  object["createdAt"] = FormatTime(key.created_at);
  object["lastUsedAt"] =
      key.last_used_at ? json::value(FormatTime(*key.last_used_at)) : json::value(nullptr);
  object["revokedAt"] =
      key.revoked_at ? json::value(FormatTime(*key.revoked_at)) : json::value(nullptr);
  return object;
}

}  // namespace space
