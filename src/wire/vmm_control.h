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

constexpr uint16_t kVmmControlVersion = 2;

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

// Builds the machine of a snapshot instead of booting one; it stands paused until ResumeRequest.
// Once per process. vCPUs, memory size and devices are in the state. Descriptors: the state
// (read), the memory layers bottom first (kSparse, read), for each disk each layer bottom first,
// then the serial log (append), the exit record, and the working set when there is one.
struct RestoreRequest {
  uint32_t memory_layers = 0;       // as many as the state names, in its order; checked by layer id
  std::vector<DiskSpec> disks;      // the same disks in the same order as when it was saved
  uint64_t serial_limit_bytes = 0;  // zero exactly when it was zero before
  bool has_working_set = false;     // memory/working_set.h: these pages are filled in at once
};

// Parks all vCPUs: the guest stands still and so does its monotonic time. Fine when it is paused.
struct PauseRequest {};

// Lets a paused or restored machine run. Its monotonic clock and TSC go on where they stood,
// however long it was paused. Fine when it runs.
struct ResumeRequest {};

// A snapshot of a running or paused machine. Descriptors: the state's file (empty, read-write), the
// new memory layer (made by CreateSparseLayer for the memory's size), then for each writable disk,
// in their order, a new empty top layer: it takes the writes from the snapshot on and the old top
// is frozen; last, with child_waits, a stream socket. Answered by SnapshotReply when the layer is
// written, while the guest has long gone on; Reply with an error when it was refused and nothing
// has changed. One at a time.
struct SnapshotRequest {
  // The new layer stands on so many of the machine's bottom memory layers; what lies above those
  // (in mapped layers or written since) goes into it. All of them is the smallest snapshot.
  uint32_t kept_memory_layers = 0;
  bool is_durable = false;    // fdatasync of everything before the reply
  bool stays_paused = false;  // the guest does not go on afterwards
  uint64_t max_bytes = 0;     // refused when more memory than this would be written; 0: no limit
  // The child that writes sends a byte over that socket, whose kernel tells who it is, and writes
  // once a byte has come back: until then it can be moved to another cgroup, which pays for the
  // layer.
  bool child_waits = false;
};

// After the restore: which pages were touched, into the descriptor's empty file
// (memory/working_set.h).
struct WorkingSetRequest {};

// Descriptor: one end of a stream socket pair. Replied when the guest accepted or refused.
struct ConnectRequest {
  uint32_t guest_port = 0;
};

struct StatusRequest {};

// Ends the VM now (reason kKilled); the reply comes before the process exits.
struct KillRequest {};

enum class VmState : uint8_t { kNew = 0, kRunning = 1, kExited = 2, kPaused = 3 };

// Why the VM ended: one word in API, CLI and logs (ExitReasonName).
enum class ExitReason : uint8_t {
  kNone = 0,
  kGuestShutdown = 1,  // power-off asked for by the guest
  kGuestReset = 2,     // reboot asked for by the guest
  kGuestPanic = 3,     // kernel panic seen
  kTripleFault = 4,
  kKilled = 5,         // KillRequest, or SIGTERM
  kInternalError = 6,  // KVM failed or a VMM invariant broke; detail says what
  kLayerLost = 7,      // a layer file under the guest's memory was cut or cannot be read
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

// Times are of the VMM's clock; pause_us is how long no vCPU ran, and the five after it are its
// parts.
struct SnapshotReply {
  // Empty: the snapshot is whole. Else why it is not; the disks' new tops are in use all the same.
  std::string error;
  uint64_t pause_us = 0;
  uint64_t park_us = 0;  // vCPUs stopped, devices drained, their state copied
  uint64_t scan_us = 0;  // pagemap
  uint64_t mark_us = 0;  // MADV_DONTFORK on and off
  uint64_t fork_us = 0;
  uint64_t resume_us = 0;
  uint64_t write_us = 0;       // of the child, after the pause
  uint64_t dirty_pages = 0;    // 4 KiB, since the layer below
  uint64_t written_pages = 0;  // with what was above kept_memory_layers and gaps that were filled
  uint32_t mappings = 0;       // that a machine restored from it will need
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
                                StatusReply, HelloEvent, ExitEvent, RestoreRequest, PauseRequest,
                                ResumeRequest, SnapshotRequest, WorkingSetRequest, SnapshotReply>;

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
