// One sandbox that has a process, or is about to have one. The catalog's record is its truth; this
// is the rest: process, control socket, who waits for it. One io_context thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "catalog/records.h"
#include "http/event.h"
#include "node/sandbox_files.h"
#include "node/vmm_client.h"

namespace space {

// Shared: coroutines of its life and of proxied requests keep it alive.
class Sandbox : public std::enable_shared_from_this<Sandbox> {
 public:
  Sandbox(const asio::any_io_executor& executor, const std::string& data_dir, SandboxRecord start);

  // What is done to this sandbox's streams when it ends; removes itself when the guard goes.
  class CutGuard {
   public:
    CutGuard(std::shared_ptr<Sandbox> sandbox, std::function<void()> cut);
    ~CutGuard();
    CutGuard(const CutGuard&) = delete;
    CutGuard& operator=(const CutGuard&) = delete;
    CutGuard(CutGuard&&) = delete;
    CutGuard& operator=(CutGuard&&) = delete;

   private:
    std::shared_ptr<Sandbox> sandbox_;
    std::list<std::function<void()>>::iterator place_;
  };
  // Resets every stream that is open now.
  void CutStreams();

  // Requests may go to it.
  bool is_usable() const { return record.state == SandboxState::kRunning && !end_reason; }

  void TakeProcess(UniqueFd pidfd);
  bool has_process() const { return process_.is_open(); }
  asio::posix::stream_descriptor& process() { return process_; }
  void Signal(int number);
  void DropProcess();

  SandboxRecord record;
  const SandboxFiles files;
  std::shared_ptr<VmmClient> vmm;
  // Wakes on every change of what is below, of record.state and of record.end_at.
  http::Event changed;
  std::optional<std::string> end_reason;  // set by who ends it: "killed", "expired", ...
  bool process_ended = false;
  std::string process_status;  // "exit code 1", "signal 9"; empty when it was no child of ours
  bool is_gone = false;        // row dead, files removed

 private:
  asio::posix::stream_descriptor process_;  // a pidfd: readable once it has ended
  std::list<std::function<void()>> cuts_;
};

}  // namespace space
