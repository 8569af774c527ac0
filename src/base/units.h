// Sizes and durations with their units, and their text forms.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space {

constexpr uint64_t KiB(uint64_t count) { return count << 10; }
constexpr uint64_t MiB(uint64_t count) { return count << 20; }
constexpr uint64_t GiB(uint64_t count) { return count << 30; }
constexpr uint64_t kPageBytes = 4096;

// "512MiB", "2g", "4096" (bytes). Units k, m, g, t with optional iB or B, powers of 1024, any case.
Result<uint64_t> ParseSize(std::string_view text);
// "250ms", "30s", "5m", "1h"; a bare number is seconds.
Result<std::chrono::milliseconds> ParseDuration(std::string_view text);
// "512 MiB", "1.5 GiB".
std::string FormatSize(uint64_t bytes);

}  // namespace space
