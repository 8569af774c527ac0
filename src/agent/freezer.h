// Freezing and thawing of everything in the guest but the agent and the kernel, with cgroup v2's
// freezer. Agent's main thread only.
//
//   <root>                the agent stays here: this group can be neither frozen nor killed, not
//    |                    even by mistake, and nobody has to be moved at boot
//    +- user              born here (spawn.h): every process of the user's
//    +- restore-<random>  hooks of one restore (hooks.h), gone afterwards
//    +- ...               what programs of the guest make for themselves, such as Docker
//
// Root in the guest may make groups beside `user` and move processes anywhere. So freezing means
// all groups below the root, and strays in the root itself go back to `user` first; whoever keeps
// running all the same is named in the error.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/wake.h"
#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

class Freezer {
 public:
  // Without groups: programs start where the agent is, and freezing fails as kUnimplemented.
  explicit Freezer(const asio::any_io_executor& executor);
  // `root` is a folder of a cgroup v2 file system that the agent has for itself; makes `user`.
  static Result<Freezer> Create(const asio::any_io_executor& executor, const std::string& root);

  // For SpawnRequest::cgroup_fd; -1 without groups.
  int user_group_fd() const { return user_.get(); }
  // Nothing may be spawned into the user's group now: it would not reach its first instruction.
  bool is_frozen() const { return is_frozen_; }

  // Returns when every process is frozen. Does nothing when they are. On failure all run again.
  //   errors: kTimeout after `limit` names who did not freeze
  asio::awaitable<Result<void>> Freeze(std::chrono::milliseconds limit);
  // Ends only what Freeze did: groups that the user froze stay so. Does nothing when none is.
  Result<void> Thaw();

  // A group of its own beside `user`, for processes that run while that one is frozen. Destroyed
  // with all that is left in it. Empty, with fd() -1, without groups.
  class ScratchGroup {
   public:
    ScratchGroup() = default;
    ScratchGroup(UniqueFd root, UniqueFd folder, std::string name)
        : root_(std::move(root)), folder_(std::move(folder)), name_(std::move(name)) {}
    ScratchGroup(const ScratchGroup&) = delete;
    ScratchGroup& operator=(const ScratchGroup&) = delete;
    ScratchGroup(ScratchGroup&&) = default;
    ScratchGroup& operator=(ScratchGroup&&) = delete;
    ~ScratchGroup();

    int fd() const { return folder_.get(); }
    void KillAll() const;

   private:
    UniqueFd root_;
    UniqueFd folder_;
    std::string name_;
  };
  Result<ScratchGroup> MakeScratchGroup() const;
  // What a successful hook left running, such as a daemon, becomes the user's.
  void AdoptFrom(const ScratchGroup& group);

 private:
  asio::awaitable<Result<void>> TryFreeze(Clock::time_point until);
  Result<void> MarkGroups();
  asio::awaitable<bool> WaitForGroup(std::string name, Clock::time_point until);
  void TakeBack(pid_t pid);
  std::string DescribeRunning() const;

  struct Marked {
    std::string name;
    bool was_frozen;  // by the user: it stays so
  };
  asio::any_io_executor executor_;
  UniqueFd root_;
  UniqueFd user_;
  std::vector<Marked> marked_;
  bool is_frozen_ = false;
};

}  // namespace space::agent
