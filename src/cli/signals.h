// Signals that ask the command line to end, as events on its one thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "http/deadline.h"
#include "http/event.h"

namespace space::cli {

// While it lives SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end the process: they are counted and
// handed to whoever listens at the moment. The third one ends the process, whatever it waits for.
class EndSignals {
 public:
  explicit EndSignals(boost::asio::io_context& io);
  ~EndSignals();
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  EndSignals(EndSignals&&) = delete;
  EndSignals& operator=(EndSignals&&) = delete;

  int first() const { return first_; }  // 0: none came
  int count() const { return count_; }
  void Listen(std::function<void(int count)> listener) { listener_ = std::move(listener); }

 private:
  void Await();
  boost::asio::signal_set signals_;
  std::function<void(int count)> listener_;
  int first_ = 0;
  int count_ = 0;
};

// Ends `grace` after the first signal, or with the second.
boost::asio::awaitable<void> SignalsInsist(EndSignals& signals, http::Event& came,
                                           std::chrono::milliseconds grace);

// The result of `work`, or kTimeout when a signal has come and `work` has not ended in the grace
// that is left to it; it is then cancelled and waited for. Nobody else may listen meanwhile.
template <class T>
boost::asio::awaitable<Result<T>> UnlessSignalled(
    EndSignals& signals, boost::asio::awaitable<Result<T>> work,
    std::chrono::milliseconds grace = std::chrono::milliseconds(0)) {
  using namespace boost::asio::experimental::awaitable_operators;
  http::Event came(co_await boost::asio::this_coro::executor);
  signals.Listen([&came](int) { came.Notify(); });
  Result<T> outcome = Fail(ErrorCode::kTimeout, "interrupted");
  if (signals.count() == 0) {
    auto first = co_await (http::CatchAll(std::move(work)) || SignalsInsist(signals, came, grace));
    if (first.index() == 0) {
      outcome = std::get<0>(std::move(first));
    }
  }
  signals.Listen({});
  co_return outcome;
}

}  // namespace space::cli
