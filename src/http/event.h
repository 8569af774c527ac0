// A condition that coroutines of one thread wait for. Check the condition, then Wait, in a loop:
// nothing runs in between, so no wake-up is lost.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space::http {

namespace asio = boost::asio;
// The completion token for all of our operations: errors are values.
inline constexpr auto kNoThrow = asio::as_tuple(asio::use_awaitable);

class Event {
 public:
  explicit Event(const asio::any_io_executor& executor)
      : timer_(executor, asio::steady_timer::time_point::max()) {}
  void Notify() { timer_.cancel(); }  // wakes all that wait now
  // The caller keeps the event alive. False when the waiting coroutine itself was cancelled.
  asio::awaitable<bool> Wait();

 private:
  asio::steady_timer timer_;
};

}  // namespace space::http
