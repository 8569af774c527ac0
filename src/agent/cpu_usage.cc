#include "agent/cpu_usage.h"

#include <cstdio>
#include <string>

#include "base/fd.h"

namespace space::agent {

double CpuUsage::UsedPercent() {
  const std::string text = ReadFile("/proc/stat").value_or("");
  unsigned long long user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0,
                     steal = 0;
  if (std::sscanf(text.c_str(), "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
                  &system, &idle, &wait, &irq, &soft, &steal) != 8) {
    return 0;
  }
  const uint64_t total = user + nice + system + idle + wait + irq + soft + steal;
  const uint64_t idle_total = idle + wait;
  const uint64_t passed = total - last_total_;
  const uint64_t idled = idle_total - last_idle_;
  last_total_ = total;
  last_idle_ = idle_total;
  if (passed == 0 || idled > passed) {
    return 0;
  }
  return 100.0 * static_cast<double>(passed - idled) / static_cast<double>(passed);
}

}  // namespace space::agent
