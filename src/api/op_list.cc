#include <algorithm>
#include <array>
#include <utility>

#include "api/api.h"
#include "api/list_query.h"
#include "api/operations.h"
#include "api/sandbox_json.h"

namespace space {
namespace {

json::object (*const kListed)(const SandboxRecord&) = ListedSandboxJson;

constexpr std::array kLiveStates = {SandboxState::kCreating,     SandboxState::kRunning,
                                    SandboxState::kSnapshotting, SandboxState::kPausing,
                                    SandboxState::kPaused,       SandboxState::kResuming,
                                    SandboxState::kStopping};

ApiResponse PageResponse(const SandboxPage& page, const SandboxQuery& query,
                         json::object (*to_json)(const SandboxRecord&)) {
  json::array list;
  for (const SandboxRecord& record : page.sandboxes) {
    list.push_back(to_json(record));
  }
  ApiResponse response = JsonResponse(200, json::serialize(list));
  if (page.has_more) {
    const SandboxRecord& last = page.sandboxes.back();
    response.headers.push_back(
        {"X-Next-Token", EncodeCursor(last.started_at, last.id, query.ascending)});
  }
  return response;
}

}  // namespace

OperationResult ListSandboxesV1(Api& api, ApiRequest request) {
  SandboxQuery query;
  if (const auto metadata = request.target.Query("metadata")) {
    SPACE_CO_TRY(query.metadata, DecodeMetadataFilter(*metadata), "");
  }
  query.team_id = request.team_id;
  query.states = StatesShownAs(ShownState::kRunning);
  query.limit = SIZE_MAX;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  co_return PageResponse(page, query, kListed);
}

OperationResult ListSandboxesV2(Api& api, ApiRequest request) {
  SPACE_CO_TRY(SandboxQuery query, ParseListQuery(request.target, ShownStateWords()), "");
  query.team_id = request.team_id;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  ApiResponse response = PageResponse(page, query, kListed);
  const auto& states = query.states;
  if (std::find(states.begin(), states.end(), SandboxState::kRunning) != states.end()) {
    SPACE_CO_TRY(const int64_t running, CountShown(api, request.team_id, ShownState::kRunning), "");
    response.headers.push_back({"X-Total-Running", std::to_string(running)});
  }
  co_return response;
}

OperationResult ListSandboxesNative(Api& api, ApiRequest request) {
  StateWords words;
  for (const SandboxState state : kLiveStates) {
    words[std::string(SandboxStateName(state))] = {state};
  }
  if (request.target.Query("all") == "true" || request.target.Query("state")) {
    words["dead"] = {SandboxState::kDead};
  }
  SPACE_CO_TRY(SandboxQuery query, ParseListQuery(request.target, words), "");
  query.team_id = request.team_id;
  SPACE_CO_TRY(const SandboxPage page, api.sandboxes().List(query), "");
  co_return PageResponse(page, query, NativeSandboxJson);
}

}  // namespace space
