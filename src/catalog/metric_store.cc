#include "catalog/metric_store.h"

#include <cmath>
#include <string>

namespace space {
namespace {

constexpr std::string_view kSelect =
    "SELECT at, cpu_count, cpu_used_ppm, mem_used, mem_total, mem_cache, disk_used, disk_total "
    "FROM metrics WHERE sandbox_id=? ";
constexpr double kPartsPerPercent = 10'000;  // the column holds parts per million

MetricPoint ReadPoint(const Statement& row) {
  MetricPoint point;
  point.at = row.Number(0) * kMicrosPerSecond;
  point.cpu_count = static_cast<uint32_t>(row.Number(1));
  point.cpu_used_percent = static_cast<double>(row.Number(2)) / kPartsPerPercent;
  point.mem_used = row.Number(3);
  point.mem_total = row.Number(4);
  point.mem_cache = row.Number(5);
  point.disk_used = row.Number(6);
  point.disk_total = row.Number(7);
  return point;
}

}  // namespace

Result<void> MetricStore::Put(std::string_view sandbox_id, const MetricPoint& point) {
  SPACE_TRY(Statement insert,
            database_.Prepare("INSERT OR REPLACE INTO metrics VALUES (?,?,?,?,?,?,?,?,?)"),
            "store metrics");
  insert.Bind(1, sandbox_id).Bind(2, point.at / kMicrosPerSecond);
  insert.Bind(3, static_cast<int64_t>(point.cpu_count));
  insert.Bind(4, static_cast<int64_t>(std::llround(point.cpu_used_percent * kPartsPerPercent)));
  insert.Bind(5, point.mem_used).Bind(6, point.mem_total).Bind(7, point.mem_cache);
  insert.Bind(8, point.disk_used).Bind(9, point.disk_total);
  return insert.Run();
}

Result<std::vector<MetricPoint>> MetricStore::List(std::string_view sandbox_id, Micros from,
                                                   Micros to) {
  SPACE_TRY(Statement select,
            database_.Prepare(std::string(kSelect) + "AND at BETWEEN ? AND ? ORDER BY at"),
            "list metrics");
  select.Bind(1, sandbox_id).Bind(2, from / kMicrosPerSecond).Bind(3, to / kMicrosPerSecond);
  std::vector<MetricPoint> points;
  for (;;) {
    SPACE_TRY(const bool has_row, select.Step(), "list metrics");
    if (!has_row) {
      return points;
    }
    points.push_back(ReadPoint(select));
  }
}

Result<std::optional<MetricPoint>> MetricStore::Newest(std::string_view sandbox_id) {
  SPACE_TRY(Statement select, database_.Prepare(std::string(kSelect) + "ORDER BY at DESC LIMIT 1"),
            "find metrics");
  select.Bind(1, sandbox_id);
  SPACE_TRY(const bool has_row, select.Step(), "find metrics");
  return has_row ? std::optional(ReadPoint(select)) : std::nullopt;
}

Result<void> MetricStore::ForgetBefore(Micros before) {
  SPACE_TRY(Statement forget, database_.Prepare("DELETE FROM metrics WHERE at<?"),
            "forget metrics");
  forget.Bind(1, before / kMicrosPerSecond);
  return forget.Run();
}

}  // namespace space
