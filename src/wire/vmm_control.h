// Messages between spaced and space-vmm: packets on the VMM's listening SEQPACKET socket, one
// client at a time; a new client takes over from a dead one (daemon restart). Requests carry an id
// that the reply repeats; events have id 0. Replies may come out of order.
//
// A packet is Header, then the body's fields in declaration order (base/bytes.h). Descriptors
// travel beside it, in the order that the body names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace space::wire {

constexpr uint16_t kVmmControlVersion = 1;

enum class LayerFormat : uint8_t {
  kRaw = 0,     // complete, page n at n * 4096
  kSparse = 1,  // src/layer/sparse_layer.h
};

struct DiskSpec {
  std::string id;                   // [a-z0-9_]{1,20}; the guest sees it as the disk's serial
  std::vector<LayerFormat> layers;  // bottom first; one descriptor each
  bool is_read_only = false;        // else the last layer is the writable top (kSparse)
  uint64_t size_bytes = 0;          // what the guest sees; at least the bottom layer's size
};

// Descriptors: kernel ELF, initramfs, then for each disk each layer bottom first, then the serial
// log (append), then the exit record. Once per process.
struct StartRequest {
  uint32_t vcpus = 1;         // 1..32
  uint64_t memory_bytes = 0;  // 64 MiB or more, multiple of 2 MiB
  // At most 2048 bytes; the VMM puts before it what its machine needs (boot/command_line.h).
  std::string command_line;
  std::vector<DiskSpec> disks;      // at most 8
  uint64_t serial_limit_bytes = 0;  // the log file keeps at most this; 0: no serial port
};

// Descriptor: one end of a stream socket pair. Replied when the guest accepted or refused.
struct ConnectRequest {
  uint32_t guest_port = 0;
};

struct StatusRequest {};

// Ends the VM now (reason kKilled); the reply comes before the process exits.
struct KillRequest {};

enum class VmState : uint8_t { kNew = 0, kRunning = 1, kExited = 2 };

// Why the VM ended: one word in API, CLI and logs (ExitReasonName).
enum class ExitReason : uint8_t {
  kNone = 0,
  kGuestShutdown = 1,  // power-off asked for by the guest
  kGuestReset = 2,     // reboot asked for by the guest
  kGuestPanic = 3,     // kernel panic seen
  kTripleFault = 4,
  kKilled = 5,         // KillRequest, or SIGTERM
  kInternalError = 6,  // KVM failed or a VMM invariant broke; detail says what
};

struct Exit {
  ExitReason reason = ExitReason::kNone;
  std::string detail;  // for a person; may be empty
};

struct Reply {
  bool is_ok = true;
  ErrorCode code = ErrorCode::kInternal;  // when not ok
  std::string message;
};

struct StatusReply {
  VmState state = VmState::kNew;
  std::string hello;  // raw bytes of the last hello, empty before it
  Exit exit;          // when kExited
  uint64_t start_to_hello_us = 0;
  uint64_t guest_faults = 0;  // device errors that the guest caused
};

// Events.
struct HelloEvent {
  std::string hello;  // raw bytes from the guest, at most Hello::kMaxBytes, not looked at
  uint64_t start_to_hello_us = 0;
};
struct ExitEvent {
  Exit exit;
};

using VmmMessage = std::variant<StartRequest, ConnectRequest, StatusRequest, KillRequest, Reply,
                                StatusReply, HelloEvent, ExitEvent>;

struct VmmPacket {
  uint32_t id = 0;
  VmmMessage message;
};

std::string Encode(const VmmPacket& packet);
// kInvalidArgument for an unknown version or type and for a body that does not fit; both sides
// treat the other as possibly broken.
Result<VmmPacket> DecodeVmmPacket(std::string_view bytes);

std::string_view ExitReasonName(ExitReason reason);  // "guest_shutdown", "killed", ...

// Text of the exit record file, written once by the VMM as its last act: "<reason name>
// <detail>\n".
std::string EncodeExitRecord(const Exit& exit);
Result<Exit> DecodeExitRecord(std::string_view text);

}  // namespace space::wire
