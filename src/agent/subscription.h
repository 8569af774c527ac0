// One client that watches a process: a bounded queue between the process and the client's stream.
// Agent's main thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "agent/wake.h"
#include "base/result.h"

namespace space::agent {

enum class OutputKind { kStdout, kStderr, kTerminal };

struct Output {
  OutputKind kind;
  std::shared_ptr<const std::string> bytes;  // shared by all subscribers
};

// How a process ended (E2B.md 3.3, 9).
struct ProcessEnd {
  int exit_code = 0;
  bool exited = false;
  std::string status;  // "exit status 1", "signal: killed"
};

class Subscription {
 public:
  // Output beyond this holds the process back.
  static constexpr size_t kMaxQueuedBytes = 256 * 1024;

  explicit Subscription(const asio::any_io_executor& executor) : changed_(executor) {}

  void Push(Output output) {
    queued_bytes_ += output.bytes->size();
    queue_.push_back(std::move(output));
    changed_.Notify();
  }
  void PushEnd(ProcessEnd end) {
    end_ = std::move(end);
    changed_.Notify();
  }
  void PushError(Error error) {
    error_ = std::move(error);
    changed_.Notify();
  }
  // The client is gone: nothing is queued from here on.
  void Close() {
    is_closed_ = true;
    changed_.Notify();
  }

  std::optional<Output> Pop() {
    if (queue_.empty()) {
      return std::nullopt;
    }
    Output output = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= output.bytes->size();
    return output;
  }

  bool is_full() const { return queued_bytes_ >= kMaxQueuedBytes; }
  bool is_closed() const { return is_closed_; }
  bool has_news() const { return !queue_.empty() || end_ || error_ || is_closed_; }
  // Comes after all output.
  const std::optional<ProcessEnd>& end() const { return end_; }
  // Overtakes queued output.
  const std::optional<Error>& error() const { return error_; }
  Wake& changed() { return changed_; }

 private:
  Wake changed_;
  std::deque<Output> queue_;
  size_t queued_bytes_ = 0;
  std::optional<ProcessEnd> end_;
  std::optional<Error> error_;
  bool is_closed_ = false;
};

}  // namespace space::agent
