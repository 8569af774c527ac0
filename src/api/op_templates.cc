// Templates that a team can create from (E2B.md 2.8 without builds).
#include <algorithm>
#include <map>
#include <utility>

#include "api/api.h"
#include "api/list_query.h"
#include "api/operations.h"
#include "api/template_json.h"
#include "node/time_text.h"
#include "wire/hello.h"

namespace space {
namespace {

constexpr size_t kMaxTemplates = 10'000;  // snapshots that are looked at

// Newest first, as they are listed.
Result<std::vector<ShownTemplate>> AllTemplates(Api& api, const std::string& team_id) {
  Catalog& catalog = api.node().catalog();
  std::vector<ShownTemplate> all;
  SPACE_TRY(const std::vector<Template> own, catalog.templates().List(), "");
  for (const Template& entry : own) {
    all.push_back(ShowTemplate(entry, std::string(wire::kEnvdVersion)));
  }
  SnapshotQuery query;
  query.team_id = team_id;
  query.limit = kMaxTemplates;
  SPACE_TRY(SnapshotPage kept, catalog.snapshots().List(query), "");
  std::map<std::string, std::vector<SnapshotRecord>> by_template;
  for (SnapshotRecord& record : kept.snapshots) {
    by_template[record.template_id].push_back(std::move(record));
  }
  for (const auto& [id, snapshots] : by_template) {
    all.push_back(ShowTemplate(snapshots));
  }
  for (ShownTemplate& shown : all) {
    SPACE_TRY(shown.spawned, catalog.sandboxes().CountOfTemplate(team_id, shown.id), "");
  }
  std::sort(all.begin(), all.end(), [](const ShownTemplate& a, const ShownTemplate& b) {
    return std::pair(a.builds.front().made_at, a.id) > std::pair(b.builds.front().made_at, b.id);
  });
  return all;
}

// By id or by any of its names; kNotFound in E2B's words.
Result<ShownTemplate> FindTemplate(Api& api, const std::string& team_id,
                                   const std::string& reference) {
  SPACE_TRY(const TemplateReference wanted, ParseTemplateReference(reference), "");
  const std::string full =
      wanted.name_space.empty() ? wanted.name : wanted.name_space + "/" + wanted.name;
  SPACE_TRY(std::vector<ShownTemplate> all, AllTemplates(api, team_id), "");
  for (ShownTemplate& shown : all) {
    const bool is_named = std::any_of(
        shown.names.begin(), shown.names.end(),
        [&](const std::string& name) { return name == full || name.ends_with("/" + full); });
    if (shown.id == full || is_named) {
      return std::move(shown);
    }
  }
  return Fail(ErrorCode::kNotFound, "template '" + reference + "' not found");
}

}  // namespace

OperationResult ListTemplatesV1(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const std::vector<ShownTemplate> all, AllTemplates(api, request.team_id), "");
  json::array list;
  for (const ShownTemplate& shown : all) {
    list.push_back(TemplateJson(shown));
  }
  co_return JsonResponse(200, json::serialize(list));
}

OperationResult ListTemplatesV2(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const Paging paging, ParsePaging(request.target), "");
  SPACE_CO_TRY(const std::vector<ShownTemplate> all, AllTemplates(api, request.team_id), "");
  json::array list;
  const ShownTemplate* last = nullptr;
  bool has_more = false;
  for (const ShownTemplate& shown : all) {
    if (paging.after && std::pair(shown.builds.front().made_at, shown.id) >= *paging.after) {
      continue;
    }
    if (list.size() == paging.limit) {
      has_more = true;
      break;
    }
    list.push_back(TemplateJson(shown));
    last = &shown;
  }
  ApiResponse response = JsonResponse(200, json::serialize(list));
  if (has_more) {
    response.headers.push_back(
        {"X-Next-Token", EncodeCursor(last->builds.front().made_at, last->id, false)});
  }
  co_return response;
}

OperationResult GetTemplate(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ShownTemplate shown, FindTemplate(api, request.team_id, request.parameters[0]),
               "");
  co_return JsonResponse(200, json::serialize(TemplateWithBuildsJson(shown)));
}

OperationResult GetTemplateAlias(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ShownTemplate shown, FindTemplate(api, request.team_id, request.parameters[0]),
               "");
  co_return JsonResponse(
      200, json::serialize(json::object{{"templateID", shown.id}, {"public", shown.is_public}}));
}

OperationResult ListTemplateTags(Api& api, ApiRequest request) {
  SPACE_CO_TRY(const ShownTemplate shown, FindTemplate(api, request.team_id, request.parameters[0]),
               "");
  json::array tags;
  for (const ShownTemplate::Build& build : shown.builds) {
    tags.push_back(json::object{
        {"tag", build.tag}, {"buildID", build.id}, {"createdAt", FormatTime(build.made_at)}});
  }
  co_return JsonResponse(200, json::serialize(tags));
}

OperationResult NotThereYet(Api&, ApiRequest) {
  co_return Fail(
      ErrorCode::kUnimplemented,
      "this server has no template builds, tags by hand, volumes, secrets or network "
      "rules yet; make a template of a sandbox with POST /sandboxes/{sandboxID}/snapshots");
}

}  // namespace space
