// GET /metrics (E2B.md 3.5).
#pragma once

#include <string>

namespace space::agent {

// Times, memory and the root disk of this machine as JSON.
std::string MetricsJson(double cpu_used_percent);

}  // namespace space::agent
