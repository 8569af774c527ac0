// Whose process it is that listens at a loopback port: on a host with several users anybody may be
// there before the daemon is, and would be told the key.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace space::cli {

// A user other than root and `self` who listens at the port of 127.0.0.0/8, ::1 or any address.
// `table`: /proc/net/tcp or tcp6 (proc_net_tcp of the kernel's documentation).
std::optional<uid_t> ForeignListener(std::string_view table, uint16_t port, uid_t self);

//   errors: kPermissionDenied naming port and user
Result<void> CheckListener(uint16_t port);

}  // namespace space::cli
