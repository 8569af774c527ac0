#include "node/vmm_client.h"

#include <sys/socket.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "http/deadline.h"
#include "http/spawn.h"

namespace space {

Result<std::shared_ptr<VmmClient>> VmmClient::Connect(const asio::any_io_executor& executor,
                                                      const std::string& path) {
  SPACE_TRY(UniqueFd socket, ConnectSeqpacket(path), "connect to VMM");
  std::shared_ptr<VmmClient> client(new VmmClient(executor, std::move(socket)));
  boost::system::error_code error;
  client->socket_.native_non_blocking(true, error);
  if (error) {
    return Fail(ErrorCode::kIo, "make control socket non-blocking: " + error.message());
  }
  http::Spawn(executor, ReadLoop(client), "vmm_client");
  return client;
}

VmmClient::VmmClient(const asio::any_io_executor& executor, UniqueFd socket)
    : executor_(executor), socket_(executor, socket.Release()), changed_(executor) {
  FillRandom(std::as_writable_bytes(std::span(&next_id_, 1)));
  next_id_ = std::max(next_id_, 1U);  // 0 marks events
}

void VmmClient::Close() {
  if (is_closed_) {
    return;
  }
  is_closed_ = true;
  agent_line_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  for (const auto& [id, pending] : pending_) {
    pending->done.Notify();
  }
  changed_.Notify();
}

asio::awaitable<void> VmmClient::ReadLoop(std::shared_ptr<VmmClient> self) {
  while (!self->is_closed_) {
    const auto [error] = co_await self->socket_.async_wait(
        asio::posix::stream_descriptor::wait_read, http::kNoThrow);
    if (error || self->is_closed_) {
      break;
    }
    auto packet = ReceivePacket(self->socket_.native_handle());
    if (!packet && packet.error().code() == ErrorCode::kTimeout) {
      continue;  // woken for nothing
    }
    if (!packet || packet->bytes.empty()) {
      break;
    }
    auto decoded = wire::DecodeVmmPacket(packet->bytes);
    if (!decoded) {
      // A VMM that may be taken over is not argued with.
      SPACE_LOG_LIMITED(log::Level::kWarn, "vmm_message_refused",
                        {"error", decoded.error().message()});
      break;
    }
    self->Dispatch(*std::move(decoded));
  }
  self->Close();
}

void VmmClient::Dispatch(wire::VmmPacket packet) {
  if (auto* event = std::get_if<wire::HelloEvent>(&packet.message)) {
    hello_ = std::move(*event);
    changed_.Notify();
    return;
  }
  if (auto* event = std::get_if<wire::ExitEvent>(&packet.message)) {
    exit_ = std::move(event->exit);
    changed_.Notify();
    return;
  }
  const auto found = pending_.find(packet.id);
  if (found != pending_.end()) {  // else its call gave up
    found->second->reply = std::move(packet.message);
    found->second->done.Notify();
  }
}

asio::awaitable<Result<wire::VmmMessage>> VmmClient::Exchange(std::shared_ptr<VmmClient> self,
                                                              std::shared_ptr<Pending> pending,
                                                              std::string bytes,
                                                              std::vector<UniqueFd> fds) {
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) {
    numbers.push_back(fd.get());
  }
  while (!self->is_closed_) {
    auto sent = SendPacket(self->socket_.native_handle(), bytes, numbers);
    if (sent) {
      break;
    }
    if (sent.error().code() != ErrorCode::kTimeout) {
      co_return Fail(ErrorCode::kUnavailable, "the VMM is gone: " + sent.error().message());
    }
    const auto [error] = co_await self->socket_.async_wait(
        asio::posix::stream_descriptor::wait_write, http::kNoThrow);
    if (error) {
      co_return Fail(ErrorCode::kUnavailable, "the VMM is gone");
    }
  }
  fds.clear();
  while (!self->is_closed_ && !pending->reply) {
    if (!co_await pending->done.Wait()) {
      co_return Fail(ErrorCode::kTimeout, "cancelled");
    }
  }
  if (!pending->reply) {
    co_return Fail(ErrorCode::kUnavailable, "the VMM is gone");
  }
  co_return *std::move(pending->reply);
}

asio::awaitable<Result<wire::VmmMessage>> VmmClient::Call(wire::VmmMessage request,
                                                          std::vector<UniqueFd> fds, int limit_ms) {
  const std::shared_ptr<VmmClient> self = shared_from_this();
  const uint32_t id = next_id_++;
  if (next_id_ == 0) {
    next_id_ = 1;  // 0 marks events
  }
  auto pending = std::make_shared<Pending>(executor_);
  pending_[id] = pending;
  std::string bytes = wire::Encode({id, std::move(request)});
  auto reply = co_await http::WithDeadline(
      Exchange(self, pending, std::move(bytes), std::move(fds)), limit_ms);
  pending_.erase(id);
  co_return reply;
}

asio::awaitable<Result<void>> VmmClient::Request(wire::VmmMessage request,
                                                 std::vector<UniqueFd> fds, int limit_ms) {
  SPACE_CO_TRY(wire::VmmMessage answer, co_await Call(std::move(request), std::move(fds), limit_ms),
               "ask VMM");
  const auto* reply = std::get_if<wire::Reply>(&answer);
  if (reply == nullptr) {
    co_return Fail(ErrorCode::kInternal, "the VMM answered with another kind of message");
  }
  if (!reply->is_ok) {
    co_return Fail(reply->code, reply->message);
  }
  co_return Result<void>();
}

asio::awaitable<Result<wire::StatusReply>> VmmClient::Status(int limit_ms) {
  SPACE_CO_TRY(wire::VmmMessage answer, co_await Call(wire::StatusRequest{}, {}, limit_ms),
               "ask VMM for its state");
  auto* status = std::get_if<wire::StatusReply>(&answer);
  if (status == nullptr) {
    co_return Fail(ErrorCode::kInternal, "the VMM answered with another kind of message");
  }
  co_return std::move(*status);
}

asio::awaitable<Result<wire::SnapshotReply>> VmmClient::Snapshot(wire::SnapshotRequest request,
                                                                 std::vector<UniqueFd> fds,
                                                                 int limit_ms) {
  SPACE_CO_TRY(wire::VmmMessage answer, co_await Call(request, std::move(fds), limit_ms),
               "ask VMM for a snapshot");
  if (const auto* refused = std::get_if<wire::Reply>(&answer); refused && !refused->is_ok) {
    co_return Fail(refused->code, refused->message);
  }
  auto* reply = std::get_if<wire::SnapshotReply>(&answer);
  if (reply == nullptr) {
    co_return Fail(ErrorCode::kUnavailable, "the VMM answered with another kind of message");
  }
  co_return std::move(*reply);
}

asio::awaitable<Result<http::Stream>> VmmClient::ConnectGuest(uint32_t port, int limit_ms) {
  SPACE_CO_TRY(auto pair, MakeSocketPair(SOCK_STREAM), "connect to guest");
  std::vector<UniqueFd> theirs;
  theirs.push_back(std::move(pair.second));
  SPACE_CO_TRY_VOID(co_await Request(wire::ConnectRequest{port}, std::move(theirs), limit_ms),
                    "connect to guest port " + std::to_string(port));
  co_return http::AdoptStream(executor_, std::move(pair.first));
}

}  // namespace space
