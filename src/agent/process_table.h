// All processes started through the agent, and the reaping of every child of PID 1. Agent's main
// thread only.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process.h"
#include "agent/proto/process.pb.h"

namespace space::agent {

class ProcessTable {
 public:
  // Exit statuses stay known for this long, for clients that connect late.
  static constexpr std::chrono::seconds kKeepAfterEnd{30};
  // Running processes started through the agent; stops a client's fork bomb by request.
  static constexpr size_t kMaxProcesses = 4096;

  struct Entry {
    std::shared_ptr<Process> process;
    rpc::process::ProcessConfig config;
    std::optional<std::string> tag;
    std::optional<Clock::time_point> ended;
  };

  explicit ProcessTable(const asio::any_io_executor& executor);

  asio::any_io_executor executor() const { return executor_; }
  // Starts reaping: from here on no one else may wait for children.
  void StartReaping();
  // kExhausted when there are too many.
  Result<void> CheckRoom();
  void Add(Entry entry);
  // For the agent's own programs: clients do not see them. Forgotten with their end.
  void AddUnlisted(std::shared_ptr<Process> process);
  // Known for 30 s after the end. kNotFound names pid or tag; kInvalidArgument for an empty
  // selector.
  Result<std::shared_ptr<Process>> Find(const rpc::process::ProcessSelector& selector);
  // As Find, but kNotFound once the process has ended.
  Result<std::shared_ptr<Process>> FindRunning(const rpc::process::ProcessSelector& selector);
  std::vector<const Entry*> Running() const;

 private:
  void WaitForChild();
  void Reap();
  void ForgetOld();

  asio::any_io_executor executor_;
  asio::signal_set child_signals_;
  std::map<pid_t, Entry> entries_;
  std::map<pid_t, std::shared_ptr<Process>> unlisted_;
};

}  // namespace space::agent
