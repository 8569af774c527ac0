// What a snapshot needs of cgroups, where a VMM has one of its own. While the child writes, each
// page that the guest changes exists twice, and a layer in memory belongs to whoever wrote it for
// as long as anybody uses it. So the group's limits are raised for that time, and the child is
// moved into the daemon's group before it writes. The daemon's thread, but for construction and
// destruction.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/fd.h"

namespace space {

class SnapshotRoom : public std::enable_shared_from_this<SnapshotRoom> {
 public:
  struct Places {
    std::string cgroups = "/sys/fs/cgroup";
    std::string proc = "/proc";
  };
  // Of the process `vmm`. nullptr: it has no group of its own (cgroup v2), nothing is needed.
  //   errors: kExhausted naming the limit when it cannot be raised
  static Result<std::shared_ptr<SnapshotRoom>> Make(const boost::asio::any_io_executor& executor,
                                                    pid_t vmm, Places places);
  SnapshotRoom(const SnapshotRoom&) = delete;
  SnapshotRoom& operator=(const SnapshotRoom&) = delete;
  ~SnapshotRoom();  // the limits are what they were

  // The child's end of the gate (wire::SnapshotRequest::child_waits), once.
  UniqueFd TakeGate() { return std::move(gate_); }
  // Waits for the child at the gate, moves it and lets it in. Ends with Close at the latest.
  static boost::asio::awaitable<void> LetChildIn(std::shared_ptr<SnapshotRoom> self);
  void Close();

 private:
  struct Limit {
    std::string path;
    std::string was;
  };
  SnapshotRoom(const boost::asio::any_io_executor& executor, pid_t vmm, Places places);
  Result<void> Raise(const std::string& folder);
  Result<void> Move(pid_t child) const;

  // In the cgroup v2 hierarchy, "/" at its top; empty when it has none.
  std::string GroupOf(const std::string& process) const;

  const pid_t vmm_;
  const Places places_;
  const std::string group_;  // of the VMM
  const std::string home_;   // of the daemon
  std::vector<Limit> raised_;
  UniqueFd gate_;
  boost::asio::posix::stream_descriptor ours_;  // our end of the gate
};

}  // namespace space
