#include "cli/signals.h"

#include <unistd.h>

#include <csignal>

#include "cli/command.h"

namespace space::cli {

EndSignals::EndSignals(boost::asio::io_context& io) : signals_(io, SIGINT, SIGTERM, SIGQUIT) {
  struct sigaction before = {};
  // Under nohup the terminal's going away is to be ignored.
  if (::sigaction(SIGHUP, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
    signals_.add(SIGHUP);
  }
  Await();
}

EndSignals::~EndSignals() { signals_.cancel(); }

boost::asio::awaitable<void> SignalsInsist(EndSignals& signals, http::Event& came,
                                           std::chrono::milliseconds grace) {
  using namespace boost::asio::experimental::awaitable_operators;
  co_await came.Wait();
  if (signals.count() == 1 && grace.count() > 0) {
    boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor, grace);
    co_await (timer.async_wait(http::kNoThrow) || came.Wait());
  }
}

void EndSignals::Await() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) {
      return;
    }
    first_ = first_ == 0 ? number : first_;
    ++count_;
    if (listener_) {
      listener_(count_);
    } else if (count_ > 2) {
      ::_exit(kExitSignalBase + number);
    }
    Await();
  });
}

}  // namespace space::cli
