// vsock numbers that host and guest agree on.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace space::wire {

constexpr uint32_t kHostCid = 2;   // virtio 1.2, 5.10.4
constexpr uint32_t kGuestCid = 3;  // all guests alike: clones need no renumbering
// Guest to host: the only port on which the VMM accepts; it carries one Hello and is closed.
constexpr uint32_t kHelloPort = 1024;
// Host to guest: HTTP of envd for clients (the same server listens on TCP 49983 in the guest).
constexpr uint32_t kEnvdPort = 49983;
// Host to guest: HTTP of envd for the daemon alone; nothing that a client sends gets here, so only
// here kInternalPaths are served.
constexpr uint32_t kControlPort = 1026;
// Host to guest: a 2-byte little-endian TCP port, answered by one byte (0 connected, else an
// errno), then bytes both ways. Reaches 127.0.0.1, ::1 and any local address of the guest.
constexpr uint32_t kForwardPort = 1025;

// What envd keeps from clients (E2B.md 3.1).
constexpr std::array<std::string_view, 7> kInternalPaths = {
    "/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"};

}  // namespace space::wire
