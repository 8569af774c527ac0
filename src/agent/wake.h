// A condition that coroutines of one thread wait for: Notify wakes all of them. As with a condition
// variable, waiters look at their condition again.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space::agent {

namespace asio = boost::asio;
inline constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);
using Clock = std::chrono::steady_clock;

class Wake {
 public:
  explicit Wake(asio::any_io_executor executor) : executor_(std::move(executor)) {}

  void Notify() {
    for (asio::steady_timer* waiter : waiters_) {
      waiter->cancel();
    }
  }
  // Until Notify or `until`, whichever is first. The owner must outlive the wait.
  asio::awaitable<void> Wait(Clock::time_point until = Clock::time_point::max()) {
    Waiter waiter(*this, until);
    co_await waiter.timer.async_wait(kNoThrow);
  }

 private:
  struct Waiter {
    Waiter(Wake& wake, Clock::time_point until) : owner(wake), timer(wake.executor_, until) {
      owner.waiters_.push_back(&timer);
    }
    ~Waiter() { std::erase(owner.waiters_, &timer); }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    Waiter(Waiter&&) = delete;
    Waiter& operator=(Waiter&&) = delete;

    Wake& owner;
    asio::steady_timer timer;
  };

  asio::any_io_executor executor_;
  std::vector<asio::steady_timer*> waiters_;
};

}  // namespace space::agent
