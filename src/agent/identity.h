// What makes one sandbox different from its copies, in files: machine id, seeds, host keys, and
// the generation that tells programs of a restore. Paths are below `root`, "" for "/": tests give
// a folder of their own. Agent's main thread only.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace space::agent {

// Replaces the text of a regular file in place, or makes it; a link or anything else in its place
// is replaced. Not synced, and not atomic: for files that nobody reads meanwhile, on paths where
// waiting for a disk would be felt.
Result<void> OverwriteFile(const std::string& path, std::string_view text, unsigned mode);

// /etc/machine-id, and D-Bus's copy of it where there is one. `id`: 32 hex digits.
//   errors: as of errno, but none on a root that is read-only: then all copies share the image's
Result<void> WriteMachineId(const std::string& root, std::string_view id);
// Random seeds that an earlier system left for its next start. Absent files are fine.
Result<void> RemoveSeeds(const std::string& root);
// For a template: seeds, SSH host keys and shell histories go, the machine id is emptied (made anew
// at the next restore).
Result<void> RemoveIdentity(const std::string& root);

// /run/space/generation: kBytes bytes for programs to map or read, readable by all.
//   0..7    how many restores this guest has seen, little endian
//   8..23   random, new with each restore
class Generation {
 public:
  static constexpr size_t kBytes = 24;
  static Result<Generation> Create(const std::string& root);
  Result<void> Advance(std::span<const std::byte, 16> id);

 private:
  explicit Generation(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;  // written, never mapped here: root in the guest may cut the file
  uint64_t restores_ = 0;
};

}  // namespace space::agent
