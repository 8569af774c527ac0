// What every benchmark prints: percentiles, and where it ran.
#pragma once

#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace space::bench {

class StopWatch {
 public:
  // Microseconds since the last lap.
  double Lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double, std::micro> spent = now - std::exchange(last_, now);
    return spent.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

inline double Percentile(std::vector<double> values, size_t percent) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, values.size() * percent / 100)];
}

inline std::string HostModel() {
  const Result<std::string> info = ReadFile("/proc/cpuinfo");
  const size_t at = info ? info->find("model name") : std::string::npos;
  if (at == std::string::npos) {
    return "unknown processor";
  }
  const size_t colon = info->find(':', at) + 2;
  return info->substr(colon, info->find('\n', colon) - colon);
}

inline void PrintWhere(const std::string& command) {
  utsname host = {};
  ::uname(&host);
  std::printf("command: %s\nhost: %s\nkernel: %s %s\n", command.c_str(), HostModel().c_str(),
              host.release, host.version);
}

}  // namespace space::bench
