// One process started through the agent. It belongs to the agent, not to the request that started
// it. Kept alive by its pumps and by the table (shared_ptr). Agent's main thread only.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/spawn.h"
#include "agent/subscription.h"
#include "agent/wake.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

struct TerminalSize {
  uint16_t columns = 80;
  uint16_t rows = 24;
};

class Process : public std::enable_shared_from_this<Process> {
 public:
  // Descriptors of `request` are filled in here. stdin is /dev/null unless `wants_stdin`.
  static Result<std::shared_ptr<Process>> Start(const asio::any_io_executor& executor,
                                                SpawnRequest request, bool wants_stdin,
                                                std::optional<TerminalSize> terminal);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  Process(Process&&) = delete;
  Process& operator=(Process&&) = delete;
  ~Process() = default;

  pid_t pid() const { return pid_; }
  bool is_terminal() const { return is_terminal_; }
  // Set once all output has been read and the process has been reaped.
  const std::optional<ProcessEnd>& end() const { return end_; }
  bool has_exited() const { return exit_.has_value(); }

  // New output and the end from now on; the end alone when it is over.
  std::shared_ptr<Subscription> Subscribe();
  void Unsubscribe(const std::shared_ptr<Subscription>& subscription);
  // A subscriber has taken output from its queue: the process may go on.
  void OnOutputTaken() { room_.Notify(); }

  // All of it is written when this returns, in the order of the calls. Waits while the process does
  // not read.
  //   errors: kInternal when stdin is closed, kInvalidArgument when there is none of that kind
  asio::awaitable<Result<void>> WriteInput(std::string bytes, bool to_terminal);
  asio::awaitable<Result<void>> CloseStdin();  // idempotent
  Result<void> Resize(TerminalSize size);
  // To the process itself, not to its group. Ends the wait for output of its children.
  Result<void> Signal(int signal);
  // SIGKILL to the whole group at that time, whoever is connected then; `starter` sees kTimeout.
  void KillAt(Clock::time_point deadline, std::shared_ptr<Subscription> starter);
  void KillGroup(int signal) const;
  // Output is read until the process itself ends, not until its children close it too.
  void EndWithExit() { was_signalled_ = true; }

  // From the reaper: `wait_status` as of waitpid.
  void OnExit(int wait_status);

 private:
  explicit Process(const asio::any_io_executor& executor);
  using Descriptor = asio::posix::stream_descriptor;

  static asio::awaitable<void> Pump(std::shared_ptr<Process> self, Descriptor& from,
                                    OutputKind kind);
  asio::awaitable<void> WaitForRoom();
  void DrainRest(Descriptor& from, OutputKind kind, std::string& buffer);
  Result<void> OpenPipes(SpawnRequest& request, bool wants_stdin, std::vector<UniqueFd>& theirs);
  Result<void> OpenTerminal(SpawnRequest& request, TerminalSize size,
                            std::vector<UniqueFd>& theirs);
  void StartPump(Descriptor& from, OutputKind kind);
  void Publish(OutputKind kind, std::string_view bytes);
  void OnDeadline(Subscription& starter);
  void StopWaitingForOutput();
  asio::awaitable<void> TakeTurn();
  void FinishIfOver();

  asio::any_io_executor executor_;
  pid_t pid_ = -1;
  bool is_terminal_ = false;
  Descriptor input_;   // stdin's pipe; unused with a terminal
  Descriptor output_;  // stdout's pipe, or the terminal's master
  Descriptor errors_;
  std::vector<std::shared_ptr<Subscription>> subscriptions_;
  asio::steady_timer deadline_;
  Wake room_;   // a subscription was read from, or left
  Wake turns_;  // the next writer may go
  uint64_t next_turn_ = 0;
  uint64_t turn_ = 0;
  int open_outputs_ = 0;
  bool was_signalled_ =
      false;  // by the API or its deadline: children that hold a pipe are not waited for
  bool is_stopping_ = false;  // outputs are read until they would block, then closed
  std::optional<int> exit_;   // wait status
  std::optional<ProcessEnd> end_;
};

// Go's wording, which the SDKs compare with.
ProcessEnd DescribeExit(int wait_status);

}  // namespace space::agent
