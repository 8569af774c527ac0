#include <utility>

#include "api/api.h"
#include "api/list_query.h"
#include "api/operations.h"
#include "api/sandbox_json.h"

namespace space {
namespace {

json::object (*const kListed)(const SandboxRecord&) = ListedSandboxJson;

ApiResponse PageResponse(const SandboxPage& page, json::object (*to_json)(const SandboxRecord&)) {
  json::array list;
  for (const SandboxRecord& record : page.sandboxes) {
    list.push_back(to_json(record));
  }
  return JsonResponse(200, json::serialize(list));
}

}  // namespace

OperationResult ListSandboxesV1(Api& api, ApiRequest request) {
  SandboxQuery query;
  if (const auto metadata = request.target.Query("metadata")) {
    SPACE_CO_TRY(query.metadata, DecodeMetadataFilter(*metadata), "");
  }
  query.team_id = request.team_id;
  query.states = {SandboxState::kRunning};
  query.limit = SIZE_MAX;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  co_return PageResponse(page, kListed);
}

OperationResult ListSandboxesV2(Api& api, ApiRequest request) {
  SPACE_CO_TRY(SandboxQuery query, ParseListQuery(request.target, {SandboxState::kRunning}), "");
  query.team_id = request.team_id;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  ApiResponse response = PageResponse(page, kListed);
  if (page.has_more) {
    response.headers.push_back(
        {"X-Next-Token", EncodeCursor(page.sandboxes.back(), query.ascending)});
  }
  if (!query.states.empty()) {
    SPACE_CO_TRY(const int64_t running,
                 api.sandboxes().Count(request.team_id, SandboxState::kRunning), "");
    response.headers.push_back({"X-Total-Running", std::to_string(running)});
  }
  co_return response;
}

OperationResult ListSandboxesNative(Api& api, ApiRequest request) {
  std::vector<SandboxState> states = {SandboxState::kCreating, SandboxState::kRunning,
                                      SandboxState::kStopping};
  const bool with_dead = request.target.Query("all") == "true" || request.target.Query("state");
  if (with_dead) {
    states.push_back(SandboxState::kDead);
  }
  SPACE_CO_TRY(SandboxQuery query, ParseListQuery(request.target, states), "");
  query.team_id = request.team_id;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  ApiResponse response = PageResponse(page, NativeSandboxJson);
  if (page.has_more) {
    response.headers.push_back(
        {"X-Next-Token", EncodeCursor(page.sandboxes.back(), query.ascending)});
  }
  co_return response;
}

}  // namespace space
