// The table of operations. A new one: its row here, its function in operations.h and an op_*.cc,
// its entry in api/openapi.yaml (a test compares the two).
#include <array>

#include "api/operations.h"

namespace space {
namespace {

constexpr auto kRoutes = std::to_array<Route>({
    {"GET", "/health", std::nullopt, GetHealth},

    {"POST", "/sandboxes", Scope::kUse, CreateSandboxV1},
    {"POST", "/v2/sandboxes", Scope::kUse, CreateSandboxV2},
    {"GET", "/sandboxes", Scope::kUse, ListSandboxesV1},
    {"GET", "/v2/sandboxes", Scope::kUse, ListSandboxesV2},
    {"GET", "/sandboxes/{sandboxID}", Scope::kUse, GetSandbox},
    {"DELETE", "/sandboxes/{sandboxID}", Scope::kUse, KillSandbox},
    {"POST", "/sandboxes/{sandboxID}/timeout", Scope::kUse, SetSandboxTimeout},
    {"POST", "/sandboxes/{sandboxID}/refreshes", Scope::kUse, RefreshSandbox},
    {"POST", "/sandboxes/{sandboxID}/connect", Scope::kUse, ConnectSandbox},
    {"POST", "/v2/sandboxes/{sandboxID}/connect", Scope::kUse, ConnectSandbox},
    {"POST", "/sandboxes/{sandboxID}/pause", Scope::kUse, PauseSandbox},
    {"POST", "/sandboxes/{sandboxID}/resume", Scope::kUse, ResumeSandbox},
    {"POST", "/sandboxes/{sandboxID}/fork", Scope::kUse, ForkSandbox},
    {"POST", "/sandboxes/{sandboxID}/snapshots", Scope::kUse, CreateSnapshot},
    {"GET", "/snapshots", Scope::kUse, ListSnapshots},
    {"DELETE", "/templates/{templateID}", Scope::kUse, DeleteTemplate},
    {"GET", "/templates", Scope::kUse, ListTemplatesV1},
    {"GET", "/v2/templates", Scope::kUse, ListTemplatesV2},
    {"GET", "/templates/{templateID}", Scope::kUse, GetTemplate},
    {"GET", "/templates/{templateID}/tags", Scope::kUse, ListTemplateTags},
    {"GET", "/templates/aliases/{alias}", Scope::kUse, GetTemplateAlias},
    {"GET", "/sandboxes/{sandboxID}/metrics", Scope::kUse, GetSandboxMetrics},
    {"GET", "/sandboxes/metrics", Scope::kUse, GetManyMetrics},
    {"GET", "/sandboxes/{sandboxID}/logs", Scope::kUse, ListLogsV1},
    {"GET", "/v2/sandboxes/{sandboxID}/logs", Scope::kUse, ListLogsV2},

    {"PUT", "/sandboxes/{sandboxID}/network", Scope::kUse, NotThereYet},
    {"POST", "/v3/templates", Scope::kUse, NotThereYet},
    {"POST", "/v2/templates", Scope::kUse, NotThereYet},
    {"POST", "/templates", Scope::kUse, NotThereYet},
    {"POST", "/templates/{templateID}", Scope::kUse, NotThereYet},
    {"GET", "/templates/{templateID}/files/{hash}", Scope::kUse, NotThereYet},
    {"POST", "/v2/templates/{templateID}/builds/{buildID}", Scope::kUse, NotThereYet},
    {"POST", "/templates/{templateID}/builds/{buildID}", Scope::kUse, NotThereYet},
    {"GET", "/templates/{templateID}/builds/{buildID}/status", Scope::kUse, NotThereYet},
    {"GET", "/templates/{templateID}/builds/{buildID}/logs", Scope::kUse, NotThereYet},
    {"PATCH", "/templates/{templateID}", Scope::kUse, NotThereYet},
    {"PATCH", "/v2/templates/{templateID}", Scope::kUse, NotThereYet},
    {"POST", "/templates/tags", Scope::kUse, NotThereYet},
    {"DELETE", "/templates/tags", Scope::kUse, NotThereYet},
    {"GET", "/volumes", Scope::kUse, NotThereYet},
    {"POST", "/volumes", Scope::kUse, NotThereYet},
    {"GET", "/volumes/{volumeID}", Scope::kUse, NotThereYet},
    {"DELETE", "/volumes/{volumeID}", Scope::kUse, NotThereYet},
    {"GET", "/secrets", Scope::kUse, NotThereYet},
    {"POST", "/secrets", Scope::kUse, NotThereYet},
    {"GET", "/secrets/{secretID}", Scope::kUse, NotThereYet},
    {"POST", "/secrets/{secretID}", Scope::kUse, NotThereYet},
    {"DELETE", "/secrets/{secretID}", Scope::kUse, NotThereYet},

    {"POST", "/space/v1/sandboxes", Scope::kUse, CreateSandboxNative},
    {"GET", "/space/v1/sandboxes", Scope::kUse, ListSandboxesNative},
    {"GET", "/space/v1/sandboxes/{sandboxID}", Scope::kUse, GetSandboxNative},
    {"DELETE", "/space/v1/sandboxes/{sandboxID}", Scope::kUse, KillSandbox},
    {"GET", "/space/v1/sandboxes/{sandboxID}/logs", Scope::kUse, GetSandboxLogs},
    {"POST", "/space/v1/sandboxes/{sandboxID}/fork", Scope::kUse, ForkSandboxNative},
    {"GET", "/space/v1/snapshots", Scope::kUse, ListSnapshotsNative},
    {"GET", "/space/v1/snapshots/{snapshotID}", Scope::kUse, GetSnapshotNative},
    {"DELETE", "/space/v1/snapshots/{snapshotID}", Scope::kUse, DeleteTemplate},
    {"GET", "/space/v1/pool", Scope::kUse, GetPool},
    {"POST", "/space/v1/keys", Scope::kAdmin, CreateKey},
    {"GET", "/space/v1/keys", Scope::kAdmin, ListKeys},
    {"DELETE", "/space/v1/keys/{keyID}", Scope::kAdmin, RevokeKey},
    {"GET", "/space/v1/status", Scope::kUse, GetStatus},
    {"GET", "/space/v1/config", Scope::kAdmin, GetConfig},
    {"POST", "/space/v1/shutdown", Scope::kAdmin, Shutdown},
});

}  // namespace

std::span<const Route> Routes() { return kRoutes; }

}  // namespace space
