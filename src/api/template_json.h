// Templates as E2B's clients see them: those of the operator, and the snapshots that a team keeps.
#pragma once

#include <string>
#include <vector>

#include "catalog/json.h"
#include "catalog/sandbox_store.h"

namespace space {

// One template with its builds, newest first: of the operator's its image, else the snapshots that
// were kept under its name.
struct ShownTemplate {
  std::string id;
  std::vector<std::string> names;
  bool is_public = false;
  struct Build {
    std::string id;  // a UUID
    uint32_t vcpus = 0;
    uint64_t memory_mib = 0;
    uint64_t disk_mib = 0;
    std::string envd_version;
    std::string tag;
    Micros made_at = 0;
  };
  std::vector<Build> builds;  // never empty
  SandboxStore::Spawned spawned;
};

// 32 hex digits with dashes. Other text: of its hex digits, zeros behind them.
std::string UuidOf(std::string_view text);

ShownTemplate ShowTemplate(const Template& entry, std::string envd_version);
// All of one template, newest first.
ShownTemplate ShowTemplate(const std::vector<SnapshotRecord>& snapshots);

json::object TemplateJson(const ShownTemplate& shown);
json::object TemplateWithBuildsJson(const ShownTemplate& shown);

}  // namespace space
