// Snapshots that are kept: made of a sandbox, listed, deleted as the templates that they are
// (E2B.md 2.7).
#include <utility>

#include "api/api.h"
#include "api/json_fields.h"
#include "api/list_query.h"
#include "api/operations.h"
#include "api/snapshot_json.h"

namespace space {
namespace {

OperationResult ListPage(Api& api, ApiRequest request,
                         json::object (*to_json)(const SnapshotRecord&)) {
  SPACE_CO_TRY(SnapshotQuery query, ParseSnapshotQuery(request.target), "");
  query.team_id = std::move(request.team_id);
  SPACE_CO_TRY(const SnapshotPage page, api.node().ListSnapshots(query), "");
  json::array list;
  for (const SnapshotRecord& record : page.snapshots) {
    list.push_back(to_json(record));
  }
  ApiResponse response = JsonResponse(200, json::serialize(list));
  if (page.has_more) {
    const SnapshotRecord& last = page.snapshots.back();
    response.headers.push_back({"X-Next-Token", EncodeCursor(last.created_at, last.id, false)});
  }
  co_return response;
}

}  // namespace

OperationResult CreateSnapshot(Api& api, ApiRequest request) {
  SPACE_CO_TRY(std::string id, SandboxIdOf(request.parameters[0]), "");
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  SPACE_CO_TRY(std::optional<std::string> name, JsonFields(body).Text("name"), "");
  SPACE_CO_TRY(const SnapshotRecord record,
               co_await api.node().Snapshot(std::move(request.team_id), std::move(id),
                                            std::move(name).value_or("")),
               "");
  co_return JsonResponse(201, json::serialize(SnapshotInfoJson(record)));
}

OperationResult ListSnapshots(Api& api, ApiRequest request) {
  return ListPage(api, std::move(request), SnapshotInfoJson);
}

OperationResult ListSnapshotsNative(Api& api, ApiRequest request) {
  return ListPage(api, std::move(request), NativeSnapshotJson);
}

OperationResult GetSnapshotNative(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const SnapshotRecord record,
               api.node().FindSnapshot(request.team_id, request.parameters[0]), "");
  co_return JsonResponse(200, json::serialize(NativeSnapshotJson(record)));
}

OperationResult DeleteTemplate(Api& api, ApiRequest request) {
  SPACE_CO_TRY_VOID(co_await api.node().DeleteSnapshot(std::move(request.team_id),
                                                       std::move(request.parameters[0])),
                    "");
  co_return NoContent();
}

}  // namespace space
