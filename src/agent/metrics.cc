#include "agent/metrics.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/fd.h"

namespace space::agent {
namespace {

// A field of /proc/meminfo in bytes.
uint64_t MemoryField(const std::string& meminfo, const std::string& name) {
  const size_t at = meminfo.find("\n" + name + ":");
  if (at == std::string::npos) {
    return 0;
  }
  return std::strtoull(meminfo.c_str() + at + name.size() + 2, nullptr, 10) * 1024;
}

}  // namespace

std::string MetricsJson(double cpu_used_percent) {
  const std::string meminfo = "\n" + ReadFile("/proc/meminfo").value_or("");
  const uint64_t total = MemoryField(meminfo, "MemTotal");
  const uint64_t available = MemoryField(meminfo, "MemAvailable");
  const uint64_t used = total > available ? total - available : 0;
  const uint64_t cache = MemoryField(meminfo, "Cached") + MemoryField(meminfo, "Buffers");
  struct statvfs disk {};
  uint64_t disk_total = 0;
  uint64_t disk_used = 0;
  if (statvfs("/", &disk) == 0) {
    disk_total = disk.f_blocks * disk.f_frsize;
    disk_used = (disk.f_blocks - disk.f_bfree) * disk.f_frsize;
  }
  char json[512];
  std::snprintf(
      json, sizeof(json),
      "{\"ts\":%lld,\"cpu_count\":%ld,\"cpu_used_pct\":%.2f,\"mem_total\":%llu,"
      "\"mem_used\":%llu,\"mem_cache\":%llu,\"mem_total_mib\":%llu,\"mem_used_mib\":%llu,"
      "\"disk_used\":%llu,\"disk_total\":%llu}",
      static_cast<long long>(std::time(nullptr)), sysconf(_SC_NPROCESSORS_ONLN), cpu_used_percent,
      static_cast<unsigned long long>(total), static_cast<unsigned long long>(used),
      static_cast<unsigned long long>(cache), static_cast<unsigned long long>(total >> 20),
      static_cast<unsigned long long>(used >> 20), static_cast<unsigned long long>(disk_used),
      static_cast<unsigned long long>(disk_total));
  return json;
}

}  // namespace space::agent
