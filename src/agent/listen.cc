#include "agent/listen.h"

#include <linux/vm_sockets.h>
#include <sys/socket.h>

#include <cerrno>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/wake.h"
#include "base/log.h"
#include "wire/ports.h"

namespace space::agent {
namespace {

using Descriptor = asio::posix::stream_descriptor;

bool IsHost(const sockaddr_storage& peer) {
  if (peer.ss_family != AF_VSOCK) {
    return true;
  }
  return reinterpret_cast<const sockaddr_vm&>(peer).svm_cid == wire::kHostCid;
}

// A connection, nothing when there is none now; errno tells why.
UniqueFd AcceptOne(int listener, sockaddr_storage& peer) {
  socklen_t length = sizeof(peer);
  peer = {};
  return UniqueFd(accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC));
}

asio::awaitable<void> AcceptLoop(std::shared_ptr<Descriptor> listener, OnConnection on_connection) {
  while (true) {
    const auto [error] = co_await listener->async_wait(Descriptor::wait_read, kNoThrow);
    if (error) {
      co_return;
    }
    sockaddr_storage peer{};
    UniqueFd connection = AcceptOne(listener->native_handle(), peer);
    if (!connection.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        // Descriptors are short: the pending connection would wake us at once again.
        asio::steady_timer pause(listener->get_executor(), std::chrono::milliseconds(50));
        co_await pause.async_wait(kNoThrow);
      }
      continue;
    }
    if (!IsHost(peer)) {
      SPACE_LOG_LIMITED(log::Level::kWarn, "vsock_peer_refused", {"family", peer.ss_family});
      continue;
    }
    auto stream = http::AdoptStream(listener->get_executor(), std::move(connection));
    if (stream) {
      on_connection(std::move(*stream));
    }
  }
}

}  // namespace

Result<void> AcceptFromHost(asio::any_io_executor executor, UniqueFd listener,
                            OnConnection on_connection) {
  auto descriptor = std::make_shared<Descriptor>(executor);
  boost::system::error_code error;
  descriptor->assign(listener.get(), error);
  if (error) {
    return Fail(ErrorCode::kIo, "watch listener: " + error.message());
  }
  (void)listener.Release();
  descriptor->non_blocking(true, error);
  asio::co_spawn(executor, AcceptLoop(descriptor, std::move(on_connection)),
                 [](std::exception_ptr failure) {
                   if (failure) {
                     log::Error("accept_loop_failed");
                   }
                 });
  return {};
}

}  // namespace space::agent
