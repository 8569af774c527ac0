#include "cli/progress.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "base/fd.h"
#include "cli/terminal.h"

namespace space::cli {

using Clock = std::chrono::steady_clock;

// Shared with the timer's pending handler, which may outlive the Progress by one turn.
struct Progress::Ticker : std::enable_shared_from_this<Ticker> {
  Ticker(boost::asio::any_io_executor executor, std::string text)
      : timer(std::move(executor)), what(std::move(text)), begun(Clock::now()) {}

  void Wait(std::chrono::seconds pause) {
    timer.expires_after(pause);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && !self->is_over) {
        self->Show();
        self->Wait(std::chrono::seconds(1));
      }
    });
  }

  void Show() {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - begun);
    is_shown = true;
    (void)WriteFull(STDERR_FILENO,
                    "\r\x1b[K" + what + " ... " + std::to_string(seconds.count()) + " s");
  }

  boost::asio::steady_timer timer;
  std::string what;
  Clock::time_point begun;
  bool is_shown = false;
  bool is_over = false;
};

Progress::Progress(boost::asio::any_io_executor executor, std::string what) {
  if (IsTerminal(STDERR_FILENO)) {
    ticker_ = std::make_shared<Ticker>(std::move(executor), std::move(what));
    ticker_->Wait(std::chrono::seconds(2));
  }
}

void Progress::SetText(std::string what) {
  if (ticker_) {
    ticker_->what = std::move(what);
  }
}

void Progress::Finish() {
  if (!ticker_) {
    return;
  }
  ticker_->is_over = true;
  ticker_->timer.cancel();
  if (ticker_->is_shown) {
    (void)WriteFull(STDERR_FILENO, "\r\x1b[K");
  }
  ticker_.reset();
}

}  // namespace space::cli
