// The table of what sandboxes used, by time. Rows go with their sandbox's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/database.h"
#include "catalog/records.h"

namespace space {

class MetricStore {
 public:
  explicit MetricStore(Database& database) : database_(database) {}

  // One point a sandbox and second: a later one of the same second takes its place.
  Result<void> Put(std::string_view sandbox_id, const MetricPoint& point);
  // Of [from, to], oldest first.
  Result<std::vector<MetricPoint>> List(std::string_view sandbox_id, Micros from, Micros to);
  Result<std::optional<MetricPoint>> Newest(std::string_view sandbox_id);
  Result<void> ForgetBefore(Micros before);

 private:
  Database& database_;
};

}  // namespace space
