#include "devices/rng/rng_device.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "state/state.h"

namespace space {
namespace {

constexpr std::array<uint16_t, 1> kQueueSizes = {64};
constexpr long kRefillNanoseconds = 50'000'000;

}  // namespace

Result<std::unique_ptr<RngDevice>> RngDevice::Create(HostPoller& poller, Clock clock) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) {
    return FailErrno("create timer of rng device");
  }
  SPACE_TRY_VOID(poller.Watch(timer.get(), EPOLLIN, kTimerToken), "watch timer of rng device");
  return std::unique_ptr<RngDevice>(new RngDevice(poller, std::move(clock), std::move(timer)));
}

RngDevice::RngDevice(HostPoller& poller, Clock clock, UniqueFd timer)
    : poller_(&poller), clock_(std::move(clock)), timer_(std::move(timer)), refilled_(clock_()) {}

RngDevice::~RngDevice() { poller_->Unwatch(timer_.get()); }

std::span<const uint16_t> RngDevice::queue_sizes() const { return kQueueSizes; }

Result<void> RngDevice::Activate(std::span<Queue> queues, uint64_t, InterruptLine& line) {
  queue_ = &queues[0];
  line_ = &line;
  return {};
}

void RngDevice::Reset() {
  queue_ = nullptr;
  line_ = nullptr;
}

void RngDevice::Refill() {
  const auto now = clock_();
  const auto passed = std::min<std::chrono::nanoseconds>(now - refilled_, std::chrono::seconds(1));
  refilled_ = now;
  const auto earned = static_cast<uint64_t>(passed.count()) * kBytesPerSecond / 1'000'000'000;
  budget_bytes_ = std::min(budget_bytes_ + earned, kMaxRequestBytes);
}

Result<bool> RngDevice::OnQueueReady(size_t) {
  SPACE_TRY_VOID(Fill(), "fill with random bytes");
  return false;
}

Result<void> RngDevice::OnHostReady(uint64_t token, uint32_t) {
  if (token != kTimerToken) {
    return {};
  }
  uint64_t expirations = 0;
  static_cast<void>(::read(timer_.get(), &expirations, sizeof(expirations)));
  return Fill();
}

Result<void> RngDevice::Fill() {
  if (queue_ == nullptr) {
    return {};
  }
  Refill();
  std::array<std::byte, 4096> random;
  // The budget bounds the bytes, the queue's size the requests.
  bool is_waiting = true;
  for (uint16_t served = 0; served < kQueueSizes[0] && budget_bytes_ > 0; ++served) {
    SPACE_TRY(const std::optional<Chain> chain, queue_->Pop(), "take entropy request");
    if (!chain.has_value()) {
      SPACE_TRY(is_waiting, queue_->EnableNotifications(), "wait for entropy requests");
      if (!is_waiting) {
        break;
      }
      continue;
    }
    if (chain->writable_bytes == 0) {
      return Fail(ErrorCode::kGuestFault, "entropy request without a writable buffer");
    }
    const uint64_t wanted = std::min(chain->writable_bytes, budget_bytes_);
    for (uint64_t done = 0; done < wanted; done += random.size()) {
      const auto part = std::span(random).first(std::min<uint64_t>(random.size(), wanted - done));
      FillRandom(part);
      CopyTo(chain->writable, done, part);
    }
    budget_bytes_ -= wanted;
    SPACE_TRY_VOID(queue_->Push(chain->head, static_cast<uint32_t>(wanted)), "return entropy");
  }
  if (is_waiting) {
    const itimerspec soon{.it_interval = {}, .it_value = {0, kRefillNanoseconds}};
    ::timerfd_settime(timer_.get(), 0, &soon, nullptr);
  }
  SPACE_TRY(const bool interrupts, queue_->ShouldInterrupt(), "return entropy");
  if (interrupts) {
    line_->SignalUsed();
  }
  return {};
}

void RngDevice::Save(StateWriter& out) const { out.Add(name(), 1, ""); }

Result<void> RngDevice::Restore(StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require(name(), 1), "restore rng device");
  static_cast<void>(section);
  return {};
}

}  // namespace space
