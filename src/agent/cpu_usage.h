// Share of CPU time that was used between two calls, over all CPUs. Main thread only.
#pragma once

#include <cstdint>

namespace space::agent {

class CpuUsage {
 public:
  // 0 to 100, since the last call; the first call counts from boot.
  double UsedPercent();

 private:
  uint64_t last_total_ = 0;
  uint64_t last_idle_ = 0;
};

}  // namespace space::agent
