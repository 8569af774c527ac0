#include "api/api.h"
#include "api/json_fields.h"
#include "api/operations.h"
#include "api/sandbox_json.h"

namespace space {

OperationResult CreateKey(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const json::object body, BodyObject(request), "");
  const JsonFields fields(body);
  SPACE_CO_TRY(const std::optional<std::string> name, fields.Text("name"), "");
  SPACE_CO_TRY(const std::optional<std::string> scope_name, fields.Text("scope"), "");
  SPACE_CO_TRY(const Scope scope, ParseScope(scope_name.value_or("use")), "validation error");
  SPACE_CO_TRY(const NewKey made,
               api.keys().Create(request.team_id, name.value_or("unnamed"), scope, Node::Now()),
               "");
  json::object answer = KeyJson(made.key);
  answer["key"] = made.secret;
  co_return JsonResponse(201, json::serialize(answer));
}

OperationResult ListKeys(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::vector<ApiKey> keys, api.keys().List(request.team_id), "");
  json::array list;
  for (const ApiKey& key : keys) {
    list.push_back(KeyJson(key));
  }
  co_return JsonResponse(200, json::serialize(list));
}

OperationResult RevokeKey(Api& api, ApiRequest request) {
  SPACE_CO_TRY_VOID(api.keys().Revoke(request.team_id, request.parameters[0], Node::Now()), "");
  co_return NoContent();
}

}  // namespace space
