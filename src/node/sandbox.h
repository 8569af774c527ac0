// One sandbox that is not dead, or a VM of our own that may become one. The catalog's record is its
// truth once it is stored; this is the rest: process, control socket, layers, who waits for it. One
// io_context thread.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/log.h"
#include "catalog/records.h"
#include "http/event.h"
#include "node/layer_folder.h"
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
  bool is_usable() const { return ShownAs(record.state) == ShownState::kRunning && !end_reason; }
  // Somebody changes its state and is waited for.
  bool is_moving() const {
    return is_parting ||
           (record.state != SandboxState::kRunning && record.state != SandboxState::kPaused);
  }

  // A record of its life: in spaced's log, and behind the VMM's own lines in its vmm_log.
  void Tell(log::Level level, std::string_view event, log::Fields fields) const;

  void TakeProcess(UniqueFd pidfd);
  bool has_process() const { return process_.is_open(); }
  asio::posix::stream_descriptor& process() { return process_; }
  void Signal(int number);
  void DropProcess();

  // kPool: restored and paused, waits for a create. kBuild: boots a template.
  enum class Purpose { kClient, kPool, kBuild };

  SandboxRecord record;
  Purpose purpose = Purpose::kClient;
  bool is_stored = false;  // the catalog has its row
  // An operation of ours is in charge of its process, and does what its end needs.
  bool is_in_hands = false;
  bool is_parting = false;  // paused already, its process still ends
  Micros asked_at = 0;      // when this VM was: its durations count from here
  const SandboxFiles files;
  LayerChains chains;  // of its machine; the root's last one is the top. Empty while it is paused
  LayerPointer top;    // made, and not yet in chains
  UniqueFd top_fd;
  uint64_t pooled_bytes = 0;  // of its memory, when it was pooled
  std::shared_ptr<VmmClient> vmm;
  // Wakes on every change of what is below, of record.state and of record.end_at.
  http::Event changed;
  std::optional<std::string> end_reason;  // set by who ends it: "killed", "expired", ...
  // Pauses at its end that failed since it was last paused, and when the next one may be tried.
  int failed_auto_pauses = 0;
  uint64_t clock = 0;  // the newest one that watches its end; earlier ones stop
  Micros auto_pause_after = 0;
  bool process_ended = false;
  std::string process_status;  // "exit code 1", "signal 9"; empty when it was no child of ours
  bool is_gone = false;        // row dead, files removed

 private:
  asio::posix::stream_descriptor process_;  // a pidfd: readable once it has ended
  std::list<std::function<void()>> cuts_;
};

}  // namespace space
