#include "wire/vmm_control.h"

#include <array>

#include "base/bytes.h"

namespace space::wire {
namespace {

constexpr size_t kMaxText = 4096;
constexpr size_t kMaxCommandLine = 2048;
constexpr size_t kMaxDisks = 8;
constexpr size_t kMaxLayers = 64;

struct ReasonName {
  ExitReason reason;
  std::string_view name;
};
constexpr std::array<ReasonName, 8> kReasons = {{
    {ExitReason::kNone, "none"},
    {ExitReason::kGuestShutdown, "guest_shutdown"},
    {ExitReason::kGuestReset, "guest_reset"},
    {ExitReason::kGuestPanic, "guest_panic"},
    {ExitReason::kTripleFault, "triple_fault"},
    {ExitReason::kKilled, "killed"},
    {ExitReason::kInternalError, "internal_error"},
    {ExitReason::kLayerLost, "layer_lost"},
}};

template <class Enum>
Result<Enum> GetEnum(ByteReader& in, uint8_t last, std::string_view what) {
  SPACE_TRY(const uint8_t value, in.Get<uint8_t>(), what);
  if (value > last) {
    return Fail(ErrorCode::kInvalidArgument, "unknown value in message", what);
  }
  return static_cast<Enum>(value);
}

Result<bool> GetBool(ByteReader& in, std::string_view what) { return GetEnum<bool>(in, 1, what); }

void Put(ByteWriter& out, const Exit& exit) {
  out.Put(static_cast<uint8_t>(exit.reason));
  out.PutString(exit.detail);
}

Result<Exit> GetExit(ByteReader& in) {
  Exit exit;
  SPACE_TRY(exit.reason, GetEnum<ExitReason>(in, kReasons.size() - 1, "exit reason"), "read");
  SPACE_TRY(exit.detail, in.GetString(kMaxText), "read exit detail");
  return exit;
}

// One Put and one Get per message; the index in VmmMessage is the type on the wire.
void Put(ByteWriter& out, const std::vector<DiskSpec>& disks) {
  out.Put(static_cast<uint32_t>(disks.size()));
  for (const DiskSpec& disk : disks) {
    out.PutString(disk.id);
    out.Put(static_cast<uint32_t>(disk.layers.size()));
    for (const LayerFormat format : disk.layers) {
      out.Put(static_cast<uint8_t>(format));
    }
    out.Put(static_cast<uint8_t>(disk.is_read_only));
    out.Put(disk.size_bytes);
  }
}

void Put(ByteWriter& out, const StartRequest& start) {
  out.Put(start.vcpus);
  out.Put(start.memory_bytes);
  out.PutString(start.command_line);
  Put(out, start.disks);
  out.Put(start.serial_limit_bytes);
}

Result<DiskSpec> GetDisk(ByteReader& in) {
  DiskSpec disk;
  SPACE_TRY(disk.id, in.GetString(20), "disk id");
  SPACE_TRY(const uint32_t layers, in.Get<uint32_t>(), "layer count");
  if (layers > kMaxLayers) {
    return Fail(ErrorCode::kInvalidArgument, "too many layers", disk.id);
  }
  for (uint32_t at = 0; at < layers; ++at) {
    SPACE_TRY(const LayerFormat format, GetEnum<LayerFormat>(in, 1, "layer format"), disk.id);
    disk.layers.push_back(format);
  }
  SPACE_TRY(disk.is_read_only, GetBool(in, "read only"), disk.id);
  SPACE_TRY(disk.size_bytes, in.Get<uint64_t>(), "disk size");
  return disk;
}

Result<std::vector<DiskSpec>> GetDisks(ByteReader& in) {
  SPACE_TRY(const uint32_t count, in.Get<uint32_t>(), "disk count");
  if (count > kMaxDisks) {
    return Fail(ErrorCode::kInvalidArgument, "too many disks");
  }
  std::vector<DiskSpec> disks;
  for (uint32_t at = 0; at < count; ++at) {
    SPACE_TRY(DiskSpec disk, GetDisk(in), "disk");
    disks.push_back(std::move(disk));
  }
  return disks;
}

Result<VmmMessage> GetStart(ByteReader& in) {
  StartRequest start;
  SPACE_TRY(start.vcpus, in.Get<uint32_t>(), "vcpus");
  SPACE_TRY(start.memory_bytes, in.Get<uint64_t>(), "memory");
  SPACE_TRY(start.command_line, in.GetString(kMaxCommandLine), "command line");
  SPACE_TRY(start.disks, GetDisks(in), "disks");
  SPACE_TRY(start.serial_limit_bytes, in.Get<uint64_t>(), "serial limit");
  return start;
}

void Put(ByteWriter& out, const ConnectRequest& connect) { out.Put(connect.guest_port); }
Result<VmmMessage> GetConnect(ByteReader& in) {
  ConnectRequest connect;
  SPACE_TRY(connect.guest_port, in.Get<uint32_t>(), "guest port");
  return connect;
}

void Put(ByteWriter&, const StatusRequest&) {}
Result<VmmMessage> GetStatusRequest(ByteReader&) { return StatusRequest{}; }
void Put(ByteWriter&, const KillRequest&) {}
Result<VmmMessage> GetKill(ByteReader&) { return KillRequest{}; }

void Put(ByteWriter& out, const Reply& reply) {
  out.Put(static_cast<uint8_t>(reply.is_ok));
  out.Put(static_cast<uint8_t>(reply.code));
  out.PutString(std::string_view(reply.message).substr(0, kMaxText));
}
Result<VmmMessage> GetReply(ByteReader& in) {
  Reply reply;
  SPACE_TRY(reply.is_ok, GetBool(in, "ok"), "reply");
  SPACE_TRY(reply.code, GetEnum<ErrorCode>(in, static_cast<uint8_t>(ErrorCode::kOverQuota), "code"),
            "reply");
  SPACE_TRY(reply.message, in.GetString(kMaxText), "reply");
  return reply;
}

void Put(ByteWriter& out, const StatusReply& status) {
  out.Put(static_cast<uint8_t>(status.state));
  out.PutString(status.hello);
  Put(out, status.exit);
  out.Put(status.start_to_hello_us);
  out.Put(status.guest_faults);
}
Result<VmmMessage> GetStatus(ByteReader& in) {
  StatusReply status;
  SPACE_TRY(status.state, GetEnum<VmState>(in, 3, "state"), "status");
  SPACE_TRY(status.hello, in.GetString(kMaxText), "status hello");
  SPACE_TRY(status.exit, GetExit(in), "status");
  SPACE_TRY(status.start_to_hello_us, in.Get<uint64_t>(), "status");
  SPACE_TRY(status.guest_faults, in.Get<uint64_t>(), "status");
  return status;
}

void Put(ByteWriter& out, const HelloEvent& event) {
  out.PutString(event.hello);
  out.Put(event.start_to_hello_us);
}
Result<VmmMessage> GetHello(ByteReader& in) {
  HelloEvent event;
  SPACE_TRY(event.hello, in.GetString(kMaxText), "hello");
  SPACE_TRY(event.start_to_hello_us, in.Get<uint64_t>(), "hello");
  return event;
}

void Put(ByteWriter& out, const ExitEvent& event) { Put(out, event.exit); }
Result<VmmMessage> GetExitEvent(ByteReader& in) {
  SPACE_TRY(Exit exit, GetExit(in), "exit event");
  return ExitEvent{std::move(exit)};
}

void Put(ByteWriter& out, const RestoreRequest& restore) {
  out.Put(restore.memory_layers);
  Put(out, restore.disks);
  out.Put(restore.serial_limit_bytes);
  out.Put(static_cast<uint8_t>(restore.has_working_set));
}
Result<VmmMessage> GetRestore(ByteReader& in) {
  RestoreRequest restore;
  SPACE_TRY(restore.memory_layers, in.Get<uint32_t>(), "memory layer count");
  if (restore.memory_layers > kMaxLayers) {
    return Fail(ErrorCode::kInvalidArgument, "too many memory layers");
  }
  SPACE_TRY(restore.disks, GetDisks(in), "disks");
  SPACE_TRY(restore.serial_limit_bytes, in.Get<uint64_t>(), "serial limit");
  SPACE_TRY(restore.has_working_set, GetBool(in, "working set"), "restore");
  return restore;
}

void Put(ByteWriter&, const PauseRequest&) {}
Result<VmmMessage> GetPause(ByteReader&) { return PauseRequest{}; }
void Put(ByteWriter&, const ResumeRequest&) {}
Result<VmmMessage> GetResume(ByteReader&) { return ResumeRequest{}; }
void Put(ByteWriter&, const WorkingSetRequest&) {}
Result<VmmMessage> GetWorkingSet(ByteReader&) { return WorkingSetRequest{}; }

void Put(ByteWriter& out, const SnapshotRequest& snapshot) {
  out.Put(snapshot.kept_memory_layers);
  out.Put(static_cast<uint8_t>(snapshot.is_durable));
  out.Put(static_cast<uint8_t>(snapshot.stays_paused));
  out.Put(snapshot.max_bytes);
  out.Put(static_cast<uint8_t>(snapshot.child_waits));
}
Result<VmmMessage> GetSnapshot(ByteReader& in) {
  SnapshotRequest snapshot;
  SPACE_TRY(snapshot.kept_memory_layers, in.Get<uint32_t>(), "kept layers");
  SPACE_TRY(snapshot.is_durable, GetBool(in, "durable"), "snapshot");
  SPACE_TRY(snapshot.stays_paused, GetBool(in, "stays paused"), "snapshot");
  SPACE_TRY(snapshot.max_bytes, in.Get<uint64_t>(), "max bytes");
  SPACE_TRY(snapshot.child_waits, GetBool(in, "child waits"), "snapshot");
  return snapshot;
}

void Put(ByteWriter& out, const SnapshotReply& reply) {
  out.PutString(std::string_view(reply.error).substr(0, kMaxText));
  for (const uint64_t value :
       {reply.pause_us, reply.park_us, reply.scan_us, reply.mark_us, reply.fork_us, reply.resume_us,
        reply.write_us, reply.dirty_pages, reply.written_pages}) {
    out.Put(value);
  }
  out.Put(reply.mappings);
}
Result<VmmMessage> GetSnapshotReply(ByteReader& in) {
  SnapshotReply reply;
  SPACE_TRY(reply.error, in.GetString(kMaxText), "snapshot reply");
  for (uint64_t* value :
       {&reply.pause_us, &reply.park_us, &reply.scan_us, &reply.mark_us, &reply.fork_us,
        &reply.resume_us, &reply.write_us, &reply.dirty_pages, &reply.written_pages}) {
    SPACE_TRY(*value, in.Get<uint64_t>(), "snapshot reply");
  }
  SPACE_TRY(reply.mappings, in.Get<uint32_t>(), "snapshot reply");
  return reply;
}

using Getter = Result<VmmMessage> (*)(ByteReader&);
constexpr std::array<Getter, std::variant_size_v<VmmMessage>> kGetters = {
    GetStart,  GetConnect,  GetStatusRequest, GetKill,         GetReply,
    GetStatus, GetHello,    GetExitEvent,     GetRestore,      GetPause,
    GetResume, GetSnapshot, GetWorkingSet,    GetSnapshotReply};

}  // namespace

std::string Encode(const VmmPacket& packet) {
  ByteWriter out;
  out.Put(kVmmControlVersion);
  out.Put(static_cast<uint16_t>(packet.message.index()));
  out.Put(packet.id);
  std::visit([&](const auto& message) { Put(out, message); }, packet.message);
  return std::move(out).Take();
}

Result<VmmPacket> DecodeVmmPacket(std::string_view bytes) {
  ByteReader in(bytes);
  SPACE_TRY(const uint16_t version, in.Get<uint16_t>(), "read control message");
  if (version != kVmmControlVersion) {
    return Fail(ErrorCode::kInvalidArgument, "control message of another version",
                std::to_string(version));
  }
  SPACE_TRY(const uint16_t type, in.Get<uint16_t>(), "read control message");
  if (type >= kGetters.size()) {
    return Fail(ErrorCode::kInvalidArgument, "control message of unknown type",
                std::to_string(type));
  }
  SPACE_TRY(const uint32_t id, in.Get<uint32_t>(), "read control message");
  SPACE_TRY(VmmMessage message, kGetters[type](in), "read control message");
  SPACE_TRY_VOID(in.Finish(), "read control message");
  return VmmPacket{id, std::move(message)};
}

std::string_view ExitReasonName(ExitReason reason) {
  for (const ReasonName& entry : kReasons) {
    if (entry.reason == reason) {
      return entry.name;
    }
  }
  return "internal_error";
}

std::string EncodeExitRecord(const Exit& exit) {
  return std::string(ExitReasonName(exit.reason)) + " " + exit.detail + "\n";
}

Result<Exit> DecodeExitRecord(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || !text.ends_with('\n')) {
    return Fail(ErrorCode::kInvalidArgument, "exit record is not complete");
  }
  for (const ReasonName& entry : kReasons) {
    if (entry.name == text.substr(0, space)) {
      return Exit{entry.reason, std::string(text.substr(space + 1, text.size() - space - 2))};
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "exit record names an unknown reason", text);
}

}  // namespace space::wire
