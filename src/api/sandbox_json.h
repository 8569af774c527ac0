// Sandboxes as JSON: E2B's schemas (E2B.md 2.3) and our own.
#pragma once

#include <string>

#include "catalog/json.h"
#include "catalog/records.h"

namespace space {

// Every sandbox is on this one node, so all have this client id.
constexpr const char* kClientId = "00000000";

json::object SandboxJson(const SandboxRecord& record, const std::string& domain);
json::object ListedSandboxJson(const SandboxRecord& record);
json::object SandboxDetailJson(const SandboxRecord& record, const std::string& domain);
// /space/v1: everything but tokens.
json::object NativeSandboxJson(const SandboxRecord& record);
// What a snapshot took, as the node wrote it; an empty object when nothing was measured.
json::object MeasuresJson(const std::string& measures);
json::object KeyJson(const ApiKey& key);

}  // namespace space
