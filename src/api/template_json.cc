#include "api/template_json.h"

#include <algorithm>
#include <utility>

#include "node/time_text.h"

namespace space {
namespace {

json::array TextArray(const std::vector<std::string>& texts) {
  json::array array;
  for (const std::string& text : texts) {
    array.emplace_back(text);
  }
  return array;
}

// Fields that both forms have.
json::object CommonJson(const ShownTemplate& shown) {
  json::object object;
  object["templateID"] = shown.id;
  object["public"] = shown.is_public;
  object["aliases"] = TextArray(shown.names);
  object["names"] = TextArray(shown.names);
  object["createdAt"] = FormatTime(shown.builds.back().made_at);
  object["updatedAt"] = FormatTime(shown.builds.front().made_at);
  object["lastSpawnedAt"] = shown.spawned.newest_at
                                ? json::value(FormatTime(*shown.spawned.newest_at))
                                : json::value(nullptr);
  object["spawnCount"] = shown.spawned.count;
  return object;
}

}  // namespace

std::string UuidOf(std::string_view text) {
  std::string digits;
  for (const char letter : text) {
    if ((letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f')) {
      digits.push_back(letter);
    }
  }
  digits.resize(32, '0');
  std::string uuid;
  for (size_t at = 0; at < digits.size(); ++at) {
    if (at == 8 || at == 12 || at == 16 || at == 20) {
      uuid.push_back('-');
    }
    uuid.push_back(digits[at]);
  }
  return uuid;
}

ShownTemplate ShowTemplate(const Template& entry, std::string envd_version) {
  ShownTemplate shown;
  shown.id = entry.id;
  shown.names = {entry.name};
  shown.is_public = true;
  const size_t colon = entry.image_digest.find(':');  // "sha256:..."
  shown.builds.push_back({UuidOf(colon == std::string::npos ? entry.image_digest
                                                            : entry.image_digest.substr(colon + 1)),
                          entry.vcpus, entry.memory_mib, entry.disk_mib, std::move(envd_version),
                          "default", entry.created_at});
  return shown;
}

ShownTemplate ShowTemplate(const std::vector<SnapshotRecord>& snapshots) {
  const SnapshotRecord& newest = snapshots.front();
  ShownTemplate shown;
  shown.id = newest.template_id;
  if (!newest.name.empty()) {
    shown.names = {PublicSnapshotName(newest)};
  }
  for (const SnapshotRecord& record : snapshots) {
    shown.builds.push_back({UuidOf(record.id), record.vcpus, record.memory_mib, record.disk_mib,
                            record.envd_version, record.tag, record.created_at});
  }
  return shown;
}

json::object TemplateJson(const ShownTemplate& shown) {
  const ShownTemplate::Build& newest = shown.builds.front();
  json::object object = CommonJson(shown);
  object["buildID"] = newest.id;
  object["cpuCount"] = newest.vcpus;
  object["memoryMB"] = newest.memory_mib;
  object["diskSizeMB"] = newest.disk_mib;
  object["createdBy"] = nullptr;
  object["buildCount"] = shown.builds.size();
  object["envdVersion"] = newest.envd_version;
  object["buildStatus"] = "ready";
  return object;
}

json::object TemplateWithBuildsJson(const ShownTemplate& shown) {
  json::object object = CommonJson(shown);
  json::array builds;
  for (const ShownTemplate::Build& build : shown.builds) {
    builds.push_back(json::object{{"buildID", build.id},
                                  {"status", "ready"},
                                  {"createdAt", FormatTime(build.made_at)},
                                  {"updatedAt", FormatTime(build.made_at)},
                                  {"finishedAt", FormatTime(build.made_at)},
                                  {"cpuCount", build.vcpus},
                                  {"memoryMB", build.memory_mib},
                                  {"diskSizeMB", build.disk_mib},
                                  {"envdVersion", build.envd_version}});
  }
  object["builds"] = std::move(builds);
  return object;
}

}  // namespace space
