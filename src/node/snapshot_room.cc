#include "node/snapshot_room.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/seqpacket.h"
#include "http/deadline.h"

namespace space {
namespace {

// cgroupfs takes what one write() brings, and has no other way to change a file.
Result<void> WriteControl(const std::string& path, std::string_view text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC));
  if (!fd.valid()) {
    return FailErrno("open", path);
  }
  auto written = WriteFull(fd.get(), text);
  return written ? written : Fail(std::move(written).error().While(path));
}

// nullopt: "max", or not a number.
std::optional<uint64_t> NumberIn(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string SnapshotRoom::GroupOf(const std::string& process) const {
  const auto text = ReadFile(places_.proc + "/" + process + "/cgroup");
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("0::/") && line.find("/..") == std::string_view::npos) {
      return std::string(line.substr(3));
    }
  }
  return "";
}

SnapshotRoom::SnapshotRoom(const boost::asio::any_io_executor& executor, pid_t vmm, Places places)
    : vmm_(vmm),
      places_(std::move(places)),
      group_(GroupOf(std::to_string(vmm))),
      home_(GroupOf("self")),
      ours_(executor) {}

Result<std::shared_ptr<SnapshotRoom>> SnapshotRoom::Make(
    const boost::asio::any_io_executor& executor, pid_t vmm, Places places) {
  std::shared_ptr<SnapshotRoom> room(new SnapshotRoom(executor, vmm, std::move(places)));
  if (room->group_.empty() || room->home_.empty() || room->group_ == room->home_) {
    return std::shared_ptr<SnapshotRoom>();
  }
  SPACE_TRY_VOID(room->Raise(room->places_.cgroups + room->group_), "");
  SPACE_TRY(auto gate, MakeSocketPair(SOCK_STREAM), "make gate");
  SPACE_TRY_VOID(NameSenders(gate.first.get()), "make gate");
  room->ours_.assign(gate.first.Release());
  room->gate_ = std::move(gate.second);
  return room;
}

// By all that is charged now, since the guest may write every page of it meanwhile.
Result<void> SnapshotRoom::Raise(const std::string& folder) {
  const auto current = ReadFile(folder + "/memory.current");
  if (!current) {
    return {};  // memory is not controlled here
  }
  const uint64_t charged = NumberIn(*current).value_or(0);
  for (const char* name : {"/memory.high", "/memory.max"}) {
    const std::string path = folder + name;
    SPACE_TRY(std::string was, ReadFile(path), "read limit");
    const std::optional<uint64_t> limit = NumberIn(was);
    if (!limit) {
      continue;
    }
    if (auto raised = WriteControl(path, std::to_string(*limit + charged)); !raised) {
      return Fail(ErrorCode::kExhausted,
                  "the source's memory limit cannot be raised: " + raised.error().message());
    }
    raised_.push_back({path, std::move(was)});
  }
  return {};
}

SnapshotRoom::~SnapshotRoom() {
  for (const Limit& limit : raised_) {
    if (const auto lowered = WriteControl(limit.path, limit.was); !lowered) {
      // Gone with its sandbox, most likely.
      log::Info("limit_not_restored", {{"why", lowered.error().message()}});
    }
  }
}

void SnapshotRoom::Close() {
  boost::system::error_code ignored;
  ours_.close(ignored);
}

boost::asio::awaitable<void> SnapshotRoom::LetChildIn(std::shared_ptr<SnapshotRoom> self) {
  for (;;) {
    const auto [error] = co_await self->ours_.async_wait(
        boost::asio::posix::stream_descriptor::wait_read, http::kNoThrow);
    if (error) {
      co_return;
    }
    const auto child = ReceiveSender(self->ours_.native_handle());
    if (!child && child.error().code() == ErrorCode::kTimeout) {
      continue;
    }
    const Result<void> moved = child ? self->Move(*child) : Fail(child.error());
    if (moved) {
      const char in = 0;
      if (::send(self->ours_.native_handle(), &in, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) {
        co_return;
      }
    } else {
      log::Warn("snapshot_child_refused", {{"why", moved.error().message()}});
    }
    self->Close();  // the child ends, and with it the snapshot
    co_return;
  }
}

// A VMM that may be taken over says who: only a process of its group, and never itself, is moved.
Result<void> SnapshotRoom::Move(pid_t child) const {
  if (child <= 0 || child == vmm_ || GroupOf(std::to_string(child)) != group_) {
    return Fail(ErrorCode::kPermissionDenied,
                "process " + std::to_string(child) + " is no child of the VMM in its group");
  }
  return WriteControl(places_.cgroups + home_ + "/cgroup.procs", std::to_string(child));
}

}  // namespace space
