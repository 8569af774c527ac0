// How many requests each team may make. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace space {

// A bucket a team, which fills by `per_second` and holds twice that. Teams are the catalog's, so
// there are never many.
class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RateLimit(uint32_t per_second) : per_second_(per_second) {}
  // 0 when the request may go on, else after how many seconds one may.
  int Take(const std::string& team_id, Clock::time_point now);

 private:
  struct Bucket {
    double left = 0;
    Clock::time_point filled_at;
  };
  const double per_second_;  // 0: no limit
  std::map<std::string, Bucket> buckets_;
};

}  // namespace space
