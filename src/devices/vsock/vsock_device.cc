// Streams as the host sees them: opening, socket events, time, closing.
#include "devices/vsock/vsock_device.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "state/state.h"

namespace space {

using vsock::ConnectionState;

namespace {

constexpr std::array<uint16_t, 3> kQueueSizes = {256, 256, 8};  // receive, transmit, event
constexpr uint32_t kLastHostPort = 0x7fffffff;

uint64_t PortKey(uint32_t host_port, uint32_t guest_port) {
  return (uint64_t{host_port} << 32) | guest_port;
}

}  // namespace

Result<std::unique_ptr<VsockDevice>> VsockDevice::Create(VsockConfig config, HostPoller& poller) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) {
    return FailErrno("create timer of vsock device");
  }
  SPACE_TRY_VOID(poller.Watch(timer.get(), EPOLLIN, kTimerToken), "watch timer of vsock device");
  return std::unique_ptr<VsockDevice>(new VsockDevice(std::move(config), poller, std::move(timer)));
}

VsockDevice::VsockDevice(VsockConfig config, HostPoller& poller, UniqueFd timer)
    : config_(std::move(config)), poller_(&poller), timer_(std::move(timer)) {
  static_assert(sizeof(config_.guest_cid) == sizeof(guest_cid_));
  std::memcpy(guest_cid_.data(), &config_.guest_cid, sizeof(guest_cid_));
}

VsockDevice::~VsockDevice() {
  for (const auto& [token, connection] : by_token_) {
    if (connection->watched_events.has_value()) {
      poller_->Unwatch(connection->socket.get());
    }
  }
  poller_->Unwatch(timer_.get());
}

std::span<const uint16_t> VsockDevice::queue_sizes() const { return kQueueSizes; }

Result<void> VsockDevice::Activate(std::span<Queue> queues, uint64_t, InterruptLine& line) {
  queues_ = queues;
  line_ = &line;
  return {};
}

Result<void> VsockDevice::Connect(uint32_t guest_port, UniqueFd stream,
                                  std::function<void(Result<void>)> on_connected) {
  const size_t most =
      guest_port == config_.control_port ? kMaxConnections : kMaxConnections - kReserved;
  if (by_token_.size() >= most) {
    on_connected(Fail(ErrorCode::kExhausted, "sandbox has too many open streams"));
    return {};
  }
  Connection& connection = Add(TakeHostPort(), guest_port, std::move(stream));
  connection.on_connected = std::move(on_connected);
  connection.pending = vsock::kPendingRequest;
  SetDeadline(connection, kConnectTimeout);
  UpdateWatch(connection);
  Enqueue(connection);
  SPACE_TRY_VOID(ServeReceive(), "open stream");
  return {};
}

uint32_t VsockDevice::TakeHostPort() {
  const auto is_used = [this](uint32_t port) {
    return std::ranges::any_of(by_ports_, [port](const auto& entry) {
      return static_cast<uint32_t>(entry.first >> 32) == port;
    });
  };
  // At most kMaxConnections are in use, so this ends.
  for (;;) {
    const uint32_t port = next_host_port_;
    next_host_port_ = port == kLastHostPort ? kFirstHostPort : port + 1;
    if (!is_used(port)) {
      return port;
    }
  }
}

VsockDevice::Connection* VsockDevice::Find(uint32_t host_port, uint32_t guest_port) const {
  const auto found = by_ports_.find(PortKey(host_port, guest_port));
  return found == by_ports_.end() ? nullptr : found->second;
}

VsockDevice::Connection& VsockDevice::Add(uint32_t host_port, uint32_t guest_port,
                                          UniqueFd socket) {
  auto connection = std::make_unique<Connection>();
  connection->token = next_token_++;
  connection->host_port = host_port;
  connection->guest_port = guest_port;
  connection->socket = std::move(socket);
  Connection& added = *connection;
  by_ports_[PortKey(host_port, guest_port)] = &added;
  by_token_[added.token] = std::move(connection);
  return added;
}

void VsockDevice::Enqueue(Connection& connection) {
  if (!connection.is_queued && connection.HasForGuest()) {
    connection.is_queued = true;
    ready_.push_back(connection.token);
  }
}

void VsockDevice::Answer(Connection& connection, Result<void> outcome) {
  if (connection.on_connected) {
    std::exchange(connection.on_connected, nullptr)(std::move(outcome));
  }
}

void VsockDevice::Close(Connection& connection, bool tell_guest, const char* why) {
  Answer(connection, Fail(ErrorCode::kUnavailable, why));
  const bool knows_guest = (connection.pending & vsock::kPendingRequest) == 0;
  if (tell_guest && knows_guest) {
    QueueReset(connection.host_port, connection.guest_port);
  }
  by_ports_.erase(PortKey(connection.host_port, connection.guest_port));
  std::erase(hellos_, connection.token);
  if (std::exchange(connection.is_queued, false)) {
    std::erase(ready_, connection.token);  // else a guest that opens and closes could fill it
  }
  if (connection.backlog_bytes() == 0) {
    return Erase(connection);
  }
  connection.state = ConnectionState::kDraining;
  connection.pending = 0;
  connection.deadline.reset();
  UpdateWatch(connection);
}

void VsockDevice::Erase(Connection& connection) {
  if (connection.watched_events.has_value()) {
    poller_->Unwatch(connection.socket.get());
  }
  by_token_.erase(connection.token);
}

void VsockDevice::Reset() {
  queues_ = {};
  line_ = nullptr;
  std::vector<Connection*> open;
  for (const auto& [ports, connection] : by_ports_) {
    open.push_back(connection);
  }
  for (Connection* connection : open) {
    Close(*connection, false, "vsock device of the guest was reset");
  }
  resets_.clear();
  ready_.clear();
  is_transmit_blocked_ = false;
}

Result<void> VsockDevice::OnHostReady(uint64_t token, uint32_t events) {
  if (token == kTimerToken) {
    OnTimer();
  } else if (const auto found = by_token_.find(token); found != by_token_.end()) {
    OnSocketEvents(*found->second, events);
  }
  if (queues_.empty()) {
    return {};
  }
  SPACE_TRY(const bool has_more, Work(false), "serve vsock sockets");
  if (has_more) {
    StartSoon();
  }
  return {};
}

void VsockDevice::OnSocketEvents(Connection& connection, uint32_t events) {
  const bool is_hung_up = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if (connection.state == ConnectionState::kConnecting && is_hung_up) {
    return Close(connection, true, "host end of the stream is gone");
  }
  if ((events & EPOLLOUT) != 0 || (is_hung_up && connection.backlog_bytes() > 0)) {
    const bool is_written = connection.WriteBacklog().has_value();
    if (connection.state == ConnectionState::kDraining) {
      if (!is_written || connection.backlog_bytes() == 0) {
        Erase(connection);
      }
      return;
    }
    if (!is_written) {
      connection.backlog = {};
      connection.backlog_start = 0;
      return Close(connection, true, "host end of the stream is gone");
    }
    OnWritten(connection);
  }
  if (is_hung_up && !connection.host_gone) {
    connection.host_gone = true;
    SetDeadline(connection, kCloseTimeout);
    if (connection.host_ended || !connection.IsReading()) {
      OnHostEnd(connection);
    }
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && connection.IsReading()) {
    connection.can_read = true;
  }
  Enqueue(connection);
  UpdateWatch(connection);
}

// The host will send no more; or, if its end is gone, neither take.
void VsockDevice::OnHostEnd(Connection& connection) {
  connection.host_ended = true;
  connection.can_read = false;
  connection.shutdown_flags |= connection.host_gone ? vsock::kShutdownBoth : vsock::kShutdownSend;
  connection.pending |= vsock::kPendingShutdown;
}

// Bytes of the guest went to the socket.
void VsockDevice::OnWritten(Connection& connection) {
  if (connection.IsCreditNewsDue()) {
    connection.pending |= vsock::kPendingCredit;
  }
  if (connection.backlog_bytes() == 0 && (connection.guest_shutdown & vsock::kShutdownSend) != 0) {
    ::shutdown(connection.socket.get(), SHUT_WR);
  }
}

void VsockDevice::UpdateWatch(Connection& connection) {
  std::optional<uint32_t> wanted = 0;
  switch (connection.state) {
    case ConnectionState::kConnecting:
      break;
    case ConnectionState::kOpen:
      // While it is known to be readable, asking again would only wake us for nothing.
      *wanted |= connection.IsReading() && !connection.can_read ? uint32_t{EPOLLIN} : 0;
      *wanted |= connection.backlog_bytes() > 0 ? uint32_t{EPOLLOUT} : 0;
      if (connection.host_gone && *wanted == 0) {
        wanted.reset();  // the hang-up would be reported for ever
      }
      break;
    case ConnectionState::kHello:
      wanted.reset();
      break;
    case ConnectionState::kDraining:
      wanted = EPOLLOUT;
      break;
  }
  if (wanted == connection.watched_events) {
    return;
  }
  connection.watched_events = wanted;
  if (!wanted.has_value()) {
    poller_->Unwatch(connection.socket.get());
    return;
  }
  const auto watched = poller_->Watch(connection.socket.get(), *wanted, connection.token);
  if (!watched.has_value()) {
    SPACE_LOG_LIMITED(log::Level::kError, "vsock_watch_failed", {"why", watched.error().message()});
  }
}

void VsockDevice::SetDeadline(Connection& connection, std::chrono::milliseconds after) {
  connection.deadline = config_.clock() + after;
  if (!armed_.has_value() || *connection.deadline < *armed_) {
    ArmTimer();
  }
}

void VsockDevice::ArmTimer() {
  armed_.reset();
  for (const auto& [token, connection] : by_token_) {
    const auto& deadline = connection->deadline;
    if (deadline.has_value() && (!armed_.has_value() || *deadline < *armed_)) {
      armed_ = deadline;
    }
  }
  if (armed_.has_value()) {
    StartTimer(
        std::max<std::chrono::nanoseconds>(*armed_ - config_.clock(), std::chrono::nanoseconds(1)));
  }
}

// The device comes back once the others had their turn.
void VsockDevice::StartSoon() {
  armed_ = config_.clock();
  StartTimer(std::chrono::nanoseconds(1));
}

void VsockDevice::StartTimer(std::chrono::nanoseconds after) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(after);
  const itimerspec spec{.it_interval = {},
                        .it_value = {seconds.count(), (after - seconds).count()}};
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void VsockDevice::OnTimer() {
  uint64_t expirations = 0;
  static_cast<void>(::read(timer_.get(), &expirations, sizeof(expirations)));
  const auto now = config_.clock();
  std::vector<Connection*> late;
  for (const auto& [token, connection] : by_token_) {
    if (connection->deadline.has_value() && *connection->deadline <= now) {
      late.push_back(connection.get());
    }
  }
  for (Connection* connection : late) {
    connection->deadline.reset();
    Answer(*connection, Fail(ErrorCode::kTimeout, "guest did not answer on port",
                             std::to_string(connection->guest_port)));
    Close(*connection, true, "guest did not close the stream in time");
  }
  ArmTimer();
}

void VsockDevice::Save(StateWriter& out) const {
  ByteWriter body;
  body.Put(next_host_port_);
  // What the guest has still to hear of streams that are gone, then those that go with the restore.
  std::vector<ResetNotice> gone(resets_.begin(), resets_.end());
  for (const auto& [ports, connection] : by_ports_) {
    if ((connection->pending & vsock::kPendingRequest) == 0) {
      gone.push_back({connection->host_port, connection->guest_port});
    }
  }
  body.Put(static_cast<uint32_t>(gone.size()));
  for (const ResetNotice& notice : gone) {
    body.Put(notice.host_port);
    body.Put(notice.guest_port);
  }
  out.Add(name(), 1, body.bytes());
}

Result<void> VsockDevice::Restore(StateReader& in) {
  SPACE_TRY(const StateSection section, in.Require(name(), 1), "restore vsock device");
  ByteReader body(section.body);
  SPACE_TRY(const uint32_t port, body.Get<uint32_t>(), "restore vsock device");
  SPACE_TRY(const uint32_t gone, body.Get<uint32_t>(), "restore vsock device");
  if (gone > kMaxConnections + kMaxResets) {
    return Fail(ErrorCode::kInvalidArgument, "saved vsock device has too many streams");
  }
  std::deque<ResetNotice> resets;
  for (uint32_t at = 0; at < gone; ++at) {
    ResetNotice notice{};
    SPACE_TRY(notice.host_port, body.Get<uint32_t>(), "restore vsock stream");
    SPACE_TRY(notice.guest_port, body.Get<uint32_t>(), "restore vsock stream");
    resets.push_back(notice);
  }
  SPACE_TRY_VOID(body.Finish(), "restore vsock device");
  if (port < kFirstHostPort || port > kLastHostPort) {
    return Fail(ErrorCode::kInvalidArgument, "saved vsock port is out of range");
  }
  next_host_port_ = port;
  resets_ = std::move(resets);
  return {};
}

}  // namespace space
