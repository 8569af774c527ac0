// Byte streams to TCP ports of a guest. One io_context thread.
#pragma once

#include <cstdint>
#include <memory>

#include <boost/asio/awaitable.hpp>

#include "http/stream.h"
#include "node/vmm_client.h"

namespace space {

// envd's port: reached by a vsock port of its own, so that it answers whatever the guest's network
// is like. Every other port goes through the agent's forwarder (wire/ports.h).
constexpr uint16_t kEnvdTcpPort = 49983;

//   errors: kUnavailable when the port is closed or the guest is gone, kTimeout
asio::awaitable<Result<http::Stream>> ConnectGuestPort(std::shared_ptr<VmmClient> vmm,
                                                       uint16_t port, int limit_ms);

}  // namespace space
