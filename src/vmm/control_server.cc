#include "vmm/control_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/log.h"
#include "memory/working_set.h"
#include "vmm/layer_loss.h"

namespace space {

Result<std::unique_ptr<ControlServer>> ControlServer::Create(UniqueFd listener,
                                                             const kvm::System& system,
                                                             std::optional<PageScan> scan,
                                                             EventLoop& loop, ExitBox& exit) {
  auto server = std::unique_ptr<ControlServer>(
      new ControlServer(std::move(listener), system, std::move(scan), loop, exit));
  SPACE_TRY_VOID(loop.Watch(server->listener_.get(), EPOLLIN, *server, kListener),
                 "watch control socket");
  return server;
}

ControlServer::ControlServer(UniqueFd listener, const kvm::System& system,
                             std::optional<PageScan> scan, EventLoop& loop, ExitBox& exit)
    : listener_(std::move(listener)),
      system_(&system),
      loop_(&loop),
      exit_(&exit),
      scan_(std::move(scan)) {}

ControlServer::~ControlServer() {
  loop_->Unwatch(listener_.get());
  loop_->Unwatch(client_.get());
  if (snapshot_) {
    loop_->Unwatch(snapshot_->child_fd());
  }
}

void ControlServer::OnEvents(uint64_t token, uint32_t /*events*/) {
  if (token == kListener) {
    Accept();
  } else if (token == kSnapshot) {
    OnSnapshotEnd();
  } else if (!waiting_.empty()) {
    SendWaiting();
  } else {
    ReadClient();
  }
}

void ControlServer::Accept() {
  UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!client.valid()) {
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      SPACE_LOG_LIMITED(log::Level::kError, "control_accept_failed", {"errno", errno});
    }
    return;
  }
  const Result<PeerCredentials> peer = PeerOf(client.get());
  if (!peer || (peer->uid != 0 && peer->uid != ::geteuid())) {
    SPACE_LOG_LIMITED(log::Level::kWarn, "control_peer_refused", {"uid", peer ? peer->uid : 0});
    return;
  }
  if (!loop_->Watch(client.get(), EPOLLIN, *this, kClient)) {
    return;
  }
  client_ = std::move(client);
  client_events_ = EPOLLIN;
  ++client_number_;
  loop_->Unwatch(listener_.get());
}

void ControlServer::DropClient(std::string_view why) {
  log::Info("control_client_gone", {{"why", why}});
  loop_->Unwatch(client_.get());
  client_ = UniqueFd();
  waiting_.clear();
  if (!machine_) {
    // Nobody else has the descriptors to start it with.
    exit_->Report(wire::ExitReason::kKilled, "client gone before the start");
    return;
  }
  if (!loop_->Watch(listener_.get(), EPOLLIN, *this, kListener)) {
    exit_->Report(wire::ExitReason::kInternalError, "control socket cannot be watched");
  }
}

void ControlServer::ReadClient() {
  // One packet per event: others get their turn between them.
  Result<Packet> packet = ReceivePacket(client_.get());
  if (!packet) {
    if (packet.error().code() != ErrorCode::kTimeout) {
      DropClient(packet.error().message());
    }
    return;
  }
  if (packet->bytes.empty()) {
    DropClient("closed");
    return;
  }
  const Result<wire::VmmPacket> request = wire::DecodeVmmPacket(packet->bytes);
  if (!request) {
    DropClient(request.error().message());
    return;
  }
  Serve(request->id, request->message, std::move(packet->fds));
}

void ControlServer::Serve(uint32_t id, const wire::VmmMessage& message, std::vector<UniqueFd> fds) {
  if (const auto* start = std::get_if<wire::StartRequest>(&message)) {
    Start(id, TryStart(*start, std::move(fds)));
  } else if (const auto* restore = std::get_if<wire::RestoreRequest>(&message)) {
    Start(id, TryRestore(*restore, std::move(fds)));
  } else if (std::holds_alternative<wire::PauseRequest>(message)) {
    Answer(id, Pause());
  } else if (std::holds_alternative<wire::ResumeRequest>(message)) {
    Answer(id, Resume());
  } else if (const auto* snapshot = std::get_if<wire::SnapshotRequest>(&message)) {
    TakeSnapshot(id, *snapshot, std::move(fds));
  } else if (std::holds_alternative<wire::WorkingSetRequest>(message)) {
    Answer(id, RecordWorkingSet(fds));
  } else if (const auto* connect = std::get_if<wire::ConnectRequest>(&message)) {
    Connect(id, *connect, std::move(fds));
  } else if (std::holds_alternative<wire::StatusRequest>(message)) {
    Send(id, Status());
  } else if (std::holds_alternative<wire::KillRequest>(message)) {
    Answer(id, {});
    exit_->Report(wire::ExitReason::kKilled, "by request");
  } else {
    DropClient("sent a reply");
  }
}

void ControlServer::Start(uint32_t id, const Result<void>& started) {
  if (!started) {
    log::Warn("start_refused", {{"why", started.error().message()}});
  }
  Answer(id, started);
}

// Called under the device's lock, maybe by a vCPU thread: only hands over.
DeviceHooks ControlServer::Hooks() {
  return DeviceHooks{[this](std::string hello) {
    if (has_hello_.exchange(true)) {
      return;
    }
    loop_->Post([this, hello = std::move(hello)]() mutable { OnHello(std::move(hello)); });
  }};
}

Result<void> ControlServer::TryStart(const wire::StartRequest& request, std::vector<UniqueFd> fds) {
  if (machine_) {
    return Fail(ErrorCode::kConflict, "the VM was started already");
  }
  started_ = std::chrono::steady_clock::now();
  SPACE_TRY(MachineConfig config, CheckStart(request, std::move(fds), HostMemoryBytes()), "start");
  SPACE_TRY(machine_, Machine::Create(*system_, config, *loop_, *exit_, Hooks()), "start");
  exit_record_ = std::move(config.exit_record);
  if (scan_) {
    scan_->Reserve(config.memory_bytes);
  }
  return machine_->Run();
}

Result<void> ControlServer::TryRestore(const wire::RestoreRequest& request,
                                       std::vector<UniqueFd> fds) {
  if (machine_) {
    return Fail(ErrorCode::kConflict, "the VM was started already");
  }
  started_ = std::chrono::steady_clock::now();
  SPACE_TRY(RestoreConfig config, CheckRestore(request, std::move(fds), HostMemoryBytes()), "");
  // From here on our own reading may meet a layer that is cut.
  EndOnLayerLoss(config.machine.exit_record.get());
  SPACE_TRY(machine_, Machine::Restore(*system_, config, *loop_, *exit_, Hooks()), "restore");
  exit_record_ = std::move(config.machine.exit_record);
  if (scan_) {
    scan_->Reserve(config.state.memory_bytes);
  }
  return {};
}

Result<void> ControlServer::Pause() {
  if (!machine_) {
    return Fail(ErrorCode::kConflict, "the VM is not started");
  }
  return machine_->Pause();
}

Result<void> ControlServer::Resume() {
  if (!machine_) {
    return Fail(ErrorCode::kConflict, "the VM is not started");
  }
  return machine_->Resume();
}

void ControlServer::TakeSnapshot(uint32_t id, const wire::SnapshotRequest& request,
                                 std::vector<UniqueFd> fds) {
  if (!machine_) {
    return Answer(id, Fail(ErrorCode::kConflict, "the VM is not started"));
  }
  if (snapshot_) {
    return Answer(id, Fail(ErrorCode::kConflict, "another snapshot is being written"));
  }
  if (!scan_) {
    return Answer(id, Fail(ErrorCode::kUnimplemented, "this VMM cannot read its page map"));
  }
  Result<std::unique_ptr<Snapshot>> taken =
      Snapshot::Take(*machine_, *scan_, request, std::move(fds));
  if (!taken) {
    log::Warn("snapshot_refused", {{"why", taken.error().message()}});
    return Answer(id, Fail(taken.error()));
  }
  snapshot_ = *std::move(taken);
  snapshot_id_ = id;
  snapshot_client_ = client_number_;
  if (snapshot_->child_fd() < 0 ||
      !loop_->Watch(snapshot_->child_fd(), EPOLLIN, *this, kSnapshot)) {
    OnSnapshotEnd();
  }
}

void ControlServer::OnSnapshotEnd() {
  if (!snapshot_) {
    return;
  }
  loop_->Unwatch(snapshot_->child_fd());
  wire::SnapshotReply reply = snapshot_->Finish();
  snapshot_.reset();
  log::Info("snapshot", {{"error", reply.error},
                         {"pause_us", reply.pause_us},
                         {"write_us", reply.write_us},
                         {"written_pages", reply.written_pages}});
  if (snapshot_client_ == client_number_) {
    Send(snapshot_id_, std::move(reply));
  }
}

Result<void> ControlServer::RecordWorkingSet(const std::vector<UniqueFd>& fds) {
  if (!machine_ || !scan_) {
    return Fail(ErrorCode::kConflict, "the VM is not started, or its page map cannot be read");
  }
  if (fds.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument, "working set needs one descriptor, an empty file");
  }
  SPACE_TRY_VOID(scan_->Scan(machine_->memory()), "record working set");
  const std::string bytes = WorkingSet::Record(scan_->dirty(), scan_->clean()).Encode();
  return PwriteFull(fds.front().get(), std::as_bytes(std::span(bytes)), 0);
}

void ControlServer::Connect(uint32_t id, const wire::ConnectRequest& request,
                            std::vector<UniqueFd> fds) {
  if (!machine_) {
    Answer(id, Fail(ErrorCode::kConflict, "the VM is not started"));
    return;
  }
  if (fds.size() != 1) {
    Answer(id, Fail(ErrorCode::kInvalidArgument, "connect needs one descriptor, a stream socket"));
    return;
  }
  machine_->Connect(request.guest_port, std::move(fds.front()),
                    [this, id, client = client_number_](Result<void> outcome) {
                      loop_->Post([this, id, client, outcome = std::move(outcome)] {
                        if (client == client_number_) {
                          Answer(id, outcome);
                        }
                      });
                    });
}

wire::StatusReply ControlServer::Status() {
  wire::StatusReply status;
  status.state = !machine_               ? wire::VmState::kNew
                 : machine_->is_paused() ? wire::VmState::kPaused
                                         : wire::VmState::kRunning;
  status.hello = hello_;
  status.start_to_hello_us = start_to_hello_us_;
  status.guest_faults = machine_ ? machine_->guest_faults() : 0;
  if (const std::optional<wire::Exit> exit = exit_->Get()) {
    status.state = wire::VmState::kExited;
    status.exit = *exit;
  }
  return status;
}

void ControlServer::OnHello(std::string hello) {
  const auto spent = std::chrono::steady_clock::now() - started_;
  hello_ = std::move(hello);
  start_to_hello_us_ =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
  Send(0, wire::HelloEvent{hello_, start_to_hello_us_});
}

void ControlServer::Answer(uint32_t id, const Result<void>& outcome) {
  wire::Reply reply;
  if (!outcome) {
    reply.is_ok = false;
    reply.code = outcome.error().code();
    reply.message = outcome.error().message();
  }
  Send(id, std::move(reply));
}

void ControlServer::Send(uint32_t id, wire::VmmMessage message) {
  if (!client_.valid()) {
    return;
  }
  waiting_.push_back(wire::Encode(wire::VmmPacket{id, std::move(message)}));
  if (waiting_.size() == 1) {
    SendWaiting();
  }
}

// Nothing here waits for the client: that would stop the devices.
void ControlServer::SendWaiting() {
  while (!waiting_.empty()) {
    const Result<void> sent = SendPacket(client_.get(), waiting_.front());
    if (!sent && sent.error().code() == ErrorCode::kTimeout) {
      break;
    }
    if (!sent) {
      return DropClient(sent.error().message());
    }
    waiting_.pop_front();
  }
  const uint32_t events = waiting_.empty() ? EPOLLIN : EPOLLOUT;
  if (events != client_events_) {
    if (!loop_->Watch(client_.get(), events, *this, kClient)) {
      return DropClient("cannot be watched");
    }
    client_events_ = events;
  }
}

void ControlServer::Finish(wire::Exit exit) {
  if (snapshot_) {
    loop_->Unwatch(snapshot_->child_fd());
    snapshot_.reset();  // kills the child
  }
  if (machine_) {
    const uint64_t faults = machine_->guest_faults();
    machine_->Close();
    exit = machine_->Explain(std::move(exit));
    log::Info("vm_exit", {{"reason", wire::ExitReasonName(exit.reason)},
                          {"detail", exit.detail},
                          {"exits", machine_->exits()},
                          {"unclaimed_accesses", machine_->unclaimed()},
                          {"guest_faults", faults}});
  }
  // The record first: whoever sees the event finds it.
  if (exit_record_.valid()) {
    const Result<void> written = WriteFull(exit_record_.get(), wire::EncodeExitRecord(exit));
    if (!written) {
      log::Error("exit_record_failed", {{"why", written.error().message()}});
    }
  }
  Send(0, wire::ExitEvent{std::move(exit)});
}

}  // namespace space
