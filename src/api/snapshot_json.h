// Snapshots as JSON: E2B's SnapshotInfo (E2B.md 2.3) and our own view.
#pragma once

#include <string>

#include "catalog/json.h"
#include "catalog/records.h"

namespace space {

json::object SnapshotInfoJson(const SnapshotRecord& record);
// /space/v1: sizes, origin and the measured times.
json::object NativeSnapshotJson(const SnapshotRecord& record);

}  // namespace space
