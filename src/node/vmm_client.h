// The daemon's end of one VMM's control socket (wire/vmm_control.h). One io_context thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/fd.h"
#include "base/seqpacket.h"
#include "http/client.h"
#include "http/event.h"
#include "http/stream.h"
#include "wire/vmm_control.h"

namespace space {

namespace asio = boost::asio;

// Shared: its read loop and pending calls keep it alive until Close or the VMM's end.
class VmmClient : public std::enable_shared_from_this<VmmClient> {
 public:
  static Result<std::shared_ptr<VmmClient>> Connect(const asio::any_io_executor& executor,
                                                    const std::string& path);

  // A request answered by Reply; its error becomes ours. kUnavailable when the VMM is gone.
  asio::awaitable<Result<void>> Request(wire::VmmMessage request, std::vector<UniqueFd> fds,
                                        int limit_ms);
  asio::awaitable<Result<wire::StatusReply>> Status(int limit_ms);
  // An error: refused, nothing has changed; or kUnavailable, kTimeout: unknown. A reply whose own
  // error is set: no snapshot, but the new tops are in use.
  asio::awaitable<Result<wire::SnapshotReply>> Snapshot(wire::SnapshotRequest request,
                                                        std::vector<UniqueFd> fds, int limit_ms);
  // A byte stream to a vsock port of the guest.
  asio::awaitable<Result<http::Stream>> ConnectGuest(uint32_t port, int limit_ms);

  // A connection to the agent that stays open for the next call; empty when there is none.
  void KeepAgentLine(http::ClientConnection line) { agent_line_ = std::move(line); }
  std::optional<http::ClientConnection> TakeAgentLine() {
    return std::exchange(agent_line_, std::nullopt);
  }

  // What the VMM has told so far; `changed` wakes with each of them.
  const std::optional<wire::HelloEvent>& hello() const { return hello_; }
  const std::optional<wire::Exit>& exit() const { return exit_; }
  bool is_closed() const { return is_closed_; }
  http::Event& changed() { return changed_; }
  void Close();

 private:
  struct Pending {
    explicit Pending(const asio::any_io_executor& executor) : done(executor) {}
    http::Event done;
    std::optional<wire::VmmMessage> reply;
  };

  VmmClient(const asio::any_io_executor& executor, UniqueFd socket);
  static asio::awaitable<void> ReadLoop(std::shared_ptr<VmmClient> self);
  static asio::awaitable<Result<wire::VmmMessage>> Exchange(std::shared_ptr<VmmClient> self,
                                                            std::shared_ptr<Pending> pending,
                                                            std::string bytes,
                                                            std::vector<UniqueFd> fds);
  asio::awaitable<Result<wire::VmmMessage>> Call(wire::VmmMessage request,
                                                 std::vector<UniqueFd> fds, int limit_ms);
  void Dispatch(wire::VmmPacket packet);

  asio::any_io_executor executor_;
  asio::posix::stream_descriptor socket_;
  http::Event changed_;
  std::map<uint32_t, std::shared_ptr<Pending>> pending_;
  uint32_t
      next_id_;  // from a random one: a late answer to an earlier client of the VMM is no one's
  bool is_closed_ = false;
  std::optional<wire::HelloEvent> hello_;
  std::optional<wire::Exit> exit_;
  std::optional<http::ClientConnection> agent_line_;
};

}  // namespace space
