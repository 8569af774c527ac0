// All operations; routes.cc says where each is found, api/openapi.yaml what it takes and gives.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "api/router.h"

namespace space {

using OperationResult = boost::asio::awaitable<Result<ApiResponse>>;

// op_create.cc
OperationResult CreateSandboxV1(Api& api, ApiRequest request);
OperationResult CreateSandboxV2(Api& api, ApiRequest request);
OperationResult CreateSandboxNative(Api& api, ApiRequest request);
// op_list.cc
OperationResult ListSandboxesV1(Api& api, ApiRequest request);
OperationResult ListSandboxesV2(Api& api, ApiRequest request);
OperationResult ListSandboxesNative(Api& api, ApiRequest request);
// op_sandbox.cc
OperationResult GetSandbox(Api& api, ApiRequest request);
OperationResult GetSandboxNative(Api& api, ApiRequest request);
OperationResult GetSandboxLogs(Api& api, ApiRequest request);
OperationResult KillSandbox(Api& api, ApiRequest request);
OperationResult SetSandboxTimeout(Api& api, ApiRequest request);
OperationResult RefreshSandbox(Api& api, ApiRequest request);
// op_pause.cc
OperationResult PauseSandbox(Api& api, ApiRequest request);
OperationResult ConnectSandbox(Api& api, ApiRequest request);
OperationResult ResumeSandbox(Api& api, ApiRequest request);
// op_fork.cc
OperationResult ForkSandbox(Api& api, ApiRequest request);
OperationResult ForkSandboxNative(Api& api, ApiRequest request);
// op_snapshots.cc
OperationResult CreateSnapshot(Api& api, ApiRequest request);
OperationResult ListSnapshots(Api& api, ApiRequest request);
OperationResult ListSnapshotsNative(Api& api, ApiRequest request);
OperationResult GetSnapshotNative(Api& api, ApiRequest request);
OperationResult DeleteTemplate(Api& api, ApiRequest request);
// op_templates.cc
OperationResult ListTemplatesV1(Api& api, ApiRequest request);
OperationResult ListTemplatesV2(Api& api, ApiRequest request);
OperationResult GetTemplate(Api& api, ApiRequest request);
OperationResult GetTemplateAlias(Api& api, ApiRequest request);
OperationResult ListTemplateTags(Api& api, ApiRequest request);
// What E2B's clients call and this server does not have: 501.
OperationResult NotThereYet(Api& api, ApiRequest request);
// op_logs.cc
OperationResult ListLogsV1(Api& api, ApiRequest request);
OperationResult ListLogsV2(Api& api, ApiRequest request);
// op_metrics.cc
OperationResult GetSandboxMetrics(Api& api, ApiRequest request);
OperationResult GetManyMetrics(Api& api, ApiRequest request);
// op_keys.cc
OperationResult CreateKey(Api& api, ApiRequest request);
OperationResult ListKeys(Api& api, ApiRequest request);
OperationResult RevokeKey(Api& api, ApiRequest request);
// op_node.cc
OperationResult GetHealth(Api& api, ApiRequest request);
OperationResult GetStatus(Api& api, ApiRequest request);
OperationResult GetPool(Api& api, ApiRequest request);
OperationResult GetConfig(Api& api, ApiRequest request);
OperationResult Shutdown(Api& api, ApiRequest request);

}  // namespace space
