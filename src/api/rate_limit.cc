#include "api/rate_limit.h"

#include <algorithm>
#include <cmath>

namespace space {

int RateLimit::Take(const std::string& team_id, Clock::time_point now) {
  if (per_second_ == 0) {
    return 0;
  }
  const double most = per_second_ * 2;
  const auto [at, is_new] = buckets_.try_emplace(team_id, Bucket{most, now});
  Bucket& bucket = at->second;
  const std::chrono::duration<double> passed = now - bucket.filled_at;
  bucket.left = std::min(most, bucket.left + passed.count() * per_second_);
  bucket.filled_at = now;
  if (bucket.left < 1) {
    return std::max(1, static_cast<int>(std::ceil((1 - bucket.left) / per_second_)));
  }
  bucket.left -= 1;
  return 0;
}

}  // namespace space
