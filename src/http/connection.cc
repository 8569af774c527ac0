#include "http/connection.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace space::http {
namespace {

constexpr int kLingerMs = 2'000;

// Clears a flag on every way out, cancellation by exception included.
class FlagHeld {
 public:
  FlagHeld(bool& flag, Event& released) : flag_(flag), released_(released) { flag_ = true; }
  ~FlagHeld() {
    flag_ = false;
    released_.Notify();
  }
  FlagHeld(const FlagHeld&) = delete;
  FlagHeld& operator=(const FlagHeld&) = delete;
  FlagHeld(FlagHeld&&) = delete;
  FlagHeld& operator=(FlagHeld&&) = delete;

 private:
  bool& flag_;
  Event& released_;
};

}  // namespace

Connection::Connection(Stream socket, std::string peer)
    : socket_(std::move(socket)),
      peer_(std::move(peer)),
      input_event_(socket_.get_executor()),
      output_event_(socket_.get_executor()),
      deadline_(socket_.get_executor()) {}

void Connection::StartFill(size_t wanted, size_t limit) {
  if (is_filling_ || input_ended_ || is_closed_) {
    return;
  }
  const auto room = input_.Prepare(wanted, limit);
  if (room.empty()) {
    return;
  }
  is_filling_ = true;
  socket_.async_read_some(
      asio::buffer(room.data(), room.size()),
      [self = shared_from_this()](const boost::system::error_code& error, size_t count) {
        self->OnFilled(error, count);
      });
}

void Connection::OnFilled(const boost::system::error_code& error, size_t count) {
  is_filling_ = false;
  input_.Commit(count);
  last_activity_ = Clock::now();
  // Detach cancels the read and goes on; nobody else does.
  if (error && error != asio::error::operation_aborted) {
    input_ended_ = true;
  }
  input_event_.Notify();
}

void Connection::WakeWaiters() {
  input_event_.Notify();
  output_event_.Notify();
}

asio::awaitable<Result<void>> Connection::Send(std::shared_ptr<Connection> self, Parts parts) {
  while (self->is_sending_) {
    if (!co_await self->output_event_.Wait()) {
      co_return Fail(ErrorCode::kTimeout, "sending was cancelled");
    }
  }
  if (self->is_closed_) {
    co_return Fail(ErrorCode::kIo, "connection is closed");
  }
  const FlagHeld sending(self->is_sending_, self->output_event_);
  const Waiting waiting(*self);
  const std::array<asio::const_buffer, 3> buffers = {asio::buffer(parts[0]), asio::buffer(parts[1]),
                                                     asio::buffer(parts[2])};
  const auto [error, count] = co_await asio::async_write(self->socket_, buffers, kNoThrow);
  self->last_activity_ = Clock::now();
  if (error) {
    // Half a message may be out: nothing sensible can follow.
    self->Cut();
    co_return Fail(ErrorCode::kIo, "send: " + error.message());
  }
  co_return Result<void>();
}

void Connection::ArmDeadline(int limit_ms) {
  has_timed_out_ = false;
  deadline_.expires_after(std::chrono::milliseconds(limit_ms));
  deadline_.async_wait([weak = weak_from_this(), generation = ++deadline_generation_](
                           const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->deadline_generation_ == generation) {
      self->has_timed_out_ = true;
      self->WakeWaiters();
    }
  });
}

void Connection::WatchActivity(int limit_ms) {
  last_activity_ = Clock::now();
  ++deadline_generation_;
  CheckActivity(limit_ms);
}

void Connection::CheckActivity(int limit_ms) {
  const auto limit = std::chrono::milliseconds(limit_ms);
  const auto now = Clock::now();
  if (waiting_ > 0 && now - last_activity_ >= limit) {
    Cut();
    return;
  }
  deadline_.expires_at((waiting_ > 0 ? last_activity_ : now) + limit);
  deadline_.async_wait([weak = weak_from_this(), generation = deadline_generation_,
                        limit_ms](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!error && self && self->deadline_generation_ == generation && !self->is_closed_) {
      self->CheckActivity(limit_ms);
    }
  });
}

Connection::Waiting::Waiting(Connection& connection) : connection_(connection) {
  ++connection_.waiting_;
  connection_.last_activity_ = Clock::now();
}

Connection::Waiting::~Waiting() { --connection_.waiting_; }

void Connection::MarkClosed() {
  is_closed_ = true;
  input_ended_ = true;
  DisarmDeadline();
  deadline_.cancel();
  WakeWaiters();
}

void Connection::Close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  MarkClosed();
}

void Connection::Cut() {
  CutStream(socket_);
  MarkClosed();
}

asio::awaitable<void> Connection::Linger(std::shared_ptr<Connection> self) {
  boost::system::error_code ignored;
  if (!self->is_closed_) {
    self->socket_.shutdown(Stream::shutdown_send, ignored);
  }
  self->ArmDeadline(kLingerMs);
  while (!self->input_ended_ && !self->has_timed_out_) {
    self->input_.Consume(self->input_.data().size());
    self->StartFill(kBodyBuffer, kBodyBuffer);
    if (!co_await self->WaitInput()) {
      break;
    }
  }
  self->Close();
}

asio::awaitable<Result<Stream>> Connection::Detach(std::shared_ptr<Connection> self) {
  if (self->is_closed_) {
    co_return Fail(ErrorCode::kIo, "connection is closed");
  }
  boost::system::error_code ignored;
  self->DisarmDeadline();
  while (self->is_filling_ && !self->is_closed_) {
    self->socket_.cancel(ignored);
    if (!co_await self->WaitInput()) {
      co_return Fail(ErrorCode::kTimeout, "taking over the connection was cancelled");
    }
  }
  if (self->is_closed_) {
    co_return Fail(ErrorCode::kIo, "connection is closed");
  }
  Stream stream = std::move(self->socket_);
  self->MarkClosed();
  co_return stream;
}

}  // namespace space::http
