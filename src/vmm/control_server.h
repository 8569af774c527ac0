// The control socket (wire/vmm_control.h): one client at a time; who connects meanwhile waits in
// the backlog until the client's end is closed. A client that goes before the start ends the
// process. On the device thread. The client is checked by its uid and otherwise treated as possibly
// broken: what it sends may end its connection, never the VM. What it is slow to read waits here,
// and while something waits no further request is read.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/seqpacket.h"
#include "kvm/system.h"
#include "memory/page_scan.h"
#include "vmm/event_loop.h"
#include "vmm/exit_box.h"
#include "vmm/machine.h"
#include "vmm/snapshot.h"
#include "wire/vmm_control.h"

namespace space {

class ControlServer final : private EventSink {
 public:
  // `listener` is a listening SEQPACKET socket. References outlive this.
  // Without `scan` (this process may not read its pagemap) there are no snapshots.
  static Result<std::unique_ptr<ControlServer>> Create(UniqueFd listener, const kvm::System& system,
                                                       std::optional<PageScan> scan,
                                                       EventLoop& loop, ExitBox& exit);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer() override;

  // Stops the machine, writes the exit record and tells the client. The last call.
  void Finish(wire::Exit exit);

 private:
  enum Token : uint64_t { kListener = 0, kClient = 1, kSnapshot = 2 };

  ControlServer(UniqueFd listener, const kvm::System& system, std::optional<PageScan> scan,
                EventLoop& loop, ExitBox& exit);
  void OnEvents(uint64_t token, uint32_t events) override;
  void Accept();
  void ReadClient();
  void DropClient(std::string_view why);
  void Serve(uint32_t id, const wire::VmmMessage& message, std::vector<UniqueFd> fds);
  void Start(uint32_t id, const Result<void>& started);
  Result<void> TryStart(const wire::StartRequest& request, std::vector<UniqueFd> fds);
  Result<void> TryRestore(const wire::RestoreRequest& request, std::vector<UniqueFd> fds);
  DeviceHooks Hooks();
  Result<void> Pause();
  Result<void> Resume();
  void TakeSnapshot(uint32_t id, const wire::SnapshotRequest& request, std::vector<UniqueFd> fds);
  void OnSnapshotEnd();
  Result<void> RecordWorkingSet(const std::vector<UniqueFd>& fds);
  void Connect(uint32_t id, const wire::ConnectRequest& request, std::vector<UniqueFd> fds);
  wire::StatusReply Status();
  void OnHello(std::string hello);
  void Answer(uint32_t id, const Result<void>& outcome);
  void Send(uint32_t id, wire::VmmMessage message);
  void SendWaiting();

  UniqueFd listener_;
  const kvm::System* system_;
  EventLoop* loop_;
  ExitBox* exit_;
  UniqueFd client_;
  uint32_t client_events_ = 0;  // watched
  uint64_t client_number_ = 0;  // a late reply must not reach the next client
  // Packets that its socket had no room for: one a request at most, and an event of each kind.
  std::deque<std::string> waiting_;
  std::optional<PageScan> scan_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Snapshot> snapshot_;  // while its child writes
  uint32_t snapshot_id_ = 0;            // of the request, and who sent it
  uint64_t snapshot_client_ = 0;
  UniqueFd exit_record_;
  std::atomic<bool> has_hello_ =
      false;  // the guest may say it as often as it likes: the first counts
  std::string hello_;
  std::chrono::steady_clock::time_point started_;
  uint64_t start_to_hello_us_ = 0;
};

}  // namespace space
