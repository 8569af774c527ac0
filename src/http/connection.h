// One accepted connection, below the level of requests: buffered input with at most one read
// pending, output one sender at a time, deadlines, and the three ways to end. One thread; shared
// because pending operations keep it alive.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/steady_timer.hpp>

#include "base/result.h"
#include "http/event.h"
#include "http/read_buffer.h"
#include "http/stream.h"

namespace space::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  static constexpr size_t kBodyBuffer = 64 * 1024;
  static constexpr size_t kIdleBuffer = 4 * 1024;

  Connection(Stream socket, std::string peer);

  const std::string& peer() const { return peer_; }
  ReadBuffer& input() { return input_; }
  // The other side has ended or failed; what it sent before is still in input().
  bool input_ended() const { return input_ended_; }
  bool is_closed() const { return is_closed_; }

  // Starts a read into input(); nothing when one is pending. Its end wakes WaitInput.
  void StartFill(size_t wanted, size_t limit);
  asio::awaitable<bool> WaitInput() { return input_event_.Wait(); }
  void WakeWaiters();
  // Since when it waits for a whole request head; nullopt while a request is served.
  std::optional<std::chrono::steady_clock::time_point> idle_since;
  // An idle connection should cost little. Not while a read is pending into that memory.
  void ShrinkInput() {
    if (!is_filling_) {
      input_.Shrink();
    }
  }

  // Sends the parts in order, after what other senders have begun. Static: owns the connection.
  using Parts = std::array<std::string_view, 3>;
  static asio::awaitable<Result<void>> Send(std::shared_ptr<Connection> self, Parts parts);

  // Head phase: after `limit_ms` has_timed_out() and waiters wake. A new call replaces the old.
  void ArmDeadline(int limit_ms);
  bool has_timed_out() const { return has_timed_out_; }
  // Body phase: cuts when a read or write waits for `limit_ms` without any byte moving either way.
  void WatchActivity(int limit_ms);
  void DisarmDeadline() { ++deadline_generation_; }
  // Counts a wait for the peer, for WatchActivity.
  class [[nodiscard]] Waiting {
   public:
    explicit Waiting(Connection& connection);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    Waiting(Waiting&&) = delete;
    Waiting& operator=(Waiting&&) = delete;

   private:
    Connection& connection_;
  };

  void Close();  // in order
  void Cut();    // the peer sees an error
  // Ends our side and discards input for a moment, so that the last response is not lost to a
  // reset.
  static asio::awaitable<void> Linger(std::shared_ptr<Connection> self);
  // Gives the socket up; nothing may be sending.
  static asio::awaitable<Result<Stream>> Detach(std::shared_ptr<Connection> self);

 private:
  using Clock = std::chrono::steady_clock;
  void OnFilled(const boost::system::error_code& error, size_t count);
  void CheckActivity(int limit_ms);
  void MarkClosed();

  Stream socket_;
  std::string peer_;
  ReadBuffer input_;
  Event input_event_;
  Event output_event_;
  asio::steady_timer deadline_;
  uint64_t deadline_generation_ = 0;
  Clock::time_point last_activity_;
  int waiting_ = 0;
  bool is_filling_ = false;
  bool is_sending_ = false;
  bool input_ended_ = false;
  bool is_closed_ = false;
  bool has_timed_out_ = false;
};

}  // namespace space::http
