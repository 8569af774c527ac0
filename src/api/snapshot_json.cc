#include "api/snapshot_json.h"

#include "api/sandbox_json.h"
#include "node/time_text.h"

namespace space {
namespace {

// Without the tag; none of an unnamed one.
json::array NamesJson(const SnapshotRecord& record) {
  json::array names;
  if (!record.name.empty()) {
    names.emplace_back(PublicSnapshotName(record));
  }
  return names;
}

}  // namespace

json::object SnapshotInfoJson(const SnapshotRecord& record) {
  json::object object;
  object["snapshotID"] = PublicSnapshotId(record);
  object["names"] = NamesJson(record);
  return object;
}

json::object NativeSnapshotJson(const SnapshotRecord& record) {
  json::object object = SnapshotInfoJson(record);
  object["templateID"] = record.template_id;
  object["tag"] = record.tag;
  object["sandboxID"] = record.source_id;
  object["baseTemplateID"] = record.base_template_id;
  object["cpuCount"] = record.vcpus;
  object["memoryMB"] = record.memory_mib;
  object["diskSizeMB"] = record.disk_mib;
  object["envdVersion"] = record.envd_version;
  object["agentVersion"] = record.agent_version;
  object["kernelRelease"] = record.kernel_release;
  object["hasMemory"] = record.has_memory;
  object["hasWorkingSet"] = record.has_working_set;
  object["storedBytes"] = record.stored_bytes;
  object["timings"] = MeasuresJson(record.measures);
  object["createdAt"] = FormatTime(record.created_at);
  object["usedAt"] =
      record.used_at == 0 ? json::value(nullptr) : json::value(FormatTime(record.used_at));
  return object;
}

}  // namespace space
