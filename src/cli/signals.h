// Signals that ask the command line to end, as events on its one thread.
#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

namespace space::cli {

// While it lives SIGINT, SIGTERM, SIGHUP and SIGQUIT do not end the process: they are counted and
// handed to whoever listens at the moment. The second one finds nobody more patient than the first.
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

}  // namespace space::cli
