// The control socket (wire/vmm_control.h): one client at a time; who connects meanwhile waits in
// the backlog until the client's end is closed. A client that goes before the start ends the
// process. On the device thread. The client is checked by its uid and otherwise treated as possibly
// broken: what it sends may end its connection, never the VM.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/seqpacket.h"
#include "kvm/system.h"
#include "vmm/event_loop.h"
#include "vmm/exit_box.h"
#include "vmm/machine.h"
#include "wire/vmm_control.h"

namespace space {

class ControlServer final : private EventSink {
 public:
  // `listener` is a listening SEQPACKET socket. References outlive this.
  static Result<std::unique_ptr<ControlServer>> Create(UniqueFd listener, const kvm::System& system,
                                                       EventLoop& loop, ExitBox& exit);
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;
  ~ControlServer() override;

  // Stops the machine, writes the exit record and tells the client. The last call.
  void Finish(wire::Exit exit);

 private:
  enum Token : uint64_t { kListener = 0, kClient = 1 };

  ControlServer(UniqueFd listener, const kvm::System& system, EventLoop& loop, ExitBox& exit);
  void OnEvents(uint64_t token, uint32_t events) override;
  void Accept();
  void ReadClient();
  void DropClient(std::string_view why);
  void Serve(uint32_t id, const wire::VmmMessage& message, std::vector<UniqueFd> fds);
  void Start(uint32_t id, const wire::StartRequest& request, std::vector<UniqueFd> fds);
  Result<void> TryStart(const wire::StartRequest& request, std::vector<UniqueFd> fds);
  void Connect(uint32_t id, const wire::ConnectRequest& request, std::vector<UniqueFd> fds);
  wire::StatusReply Status();
  void OnHello(std::string hello);
  void Answer(uint32_t id, const Result<void>& outcome);
  void Send(uint32_t id, wire::VmmMessage message);

  UniqueFd listener_;
  const kvm::System* system_;
  EventLoop* loop_;
  ExitBox* exit_;
  UniqueFd client_;
  uint64_t client_number_ = 0;  // a late reply must not reach the next client
  std::unique_ptr<Machine> machine_;
  UniqueFd exit_record_;
  std::string hello_;
  std::chrono::steady_clock::time_point started_;
  uint64_t start_to_hello_us_ = 0;
};

}  // namespace space
