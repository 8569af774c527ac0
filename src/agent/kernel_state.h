// What a restore mends in the guest's kernel: wall clock and random pool. Agent's main thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>

#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

using WallTime = std::chrono::nanoseconds;  // since 1970, UTC

// Interface, so that tests set no clock.
class KernelState {
 public:
  virtual ~KernelState() = default;
  virtual WallTime Now() const = 0;
  virtual Result<void> SetClock(WallTime now) = 0;
  // `bytes` count as wholly random; every generator of the kernel is new afterwards.
  virtual Result<void> AddEntropy(std::span<const std::byte> bytes) = 0;
};

class LinuxKernelState final : public KernelState {
 public:
  LinuxKernelState();
  WallTime Now() const override;
  Result<void> SetClock(WallTime now) override;
  //   errors: kPermissionDenied without CAP_SYS_ADMIN; kInvalidArgument above 512 bytes
  Result<void> AddEntropy(std::span<const std::byte> bytes) override;

 private:
  UniqueFd random_;  // open from the start: nothing in the guest can put another file in its place
};

// Of a program that is not a guest's PID 1: takes everything, changes nothing.
class NoKernelState final : public KernelState {
 public:
  WallTime Now() const override { return {}; }
  Result<void> SetClock(WallTime) override { return {}; }
  Result<void> AddEntropy(std::span<const std::byte>) override { return {}; }
};

// The host's time is never ahead: it was read before the request was sent. So a clock behind `host`
// is wrong and set; one ahead of it may just be the time that the request took, and is set back
// only beyond this.
constexpr std::chrono::milliseconds kMaxAhead{50};
Result<void> CorrectClock(KernelState& kernel, WallTime host);

}  // namespace space::agent
