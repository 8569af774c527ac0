#include "cli/signals.h"

#include <csignal>

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

void EndSignals::Await() {
  signals_.async_wait([this](const boost::system::error_code& error, int number) {
    if (error) {
      return;
    }
    first_ = first_ == 0 ? number : first_;
    ++count_;
    if (listener_) {
      listener_(count_);
    }
    Await();
  });
}

}  // namespace space::cli
