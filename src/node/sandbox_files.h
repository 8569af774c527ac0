// The folder of one sandbox under data_dir/sandboxes: its disk's top layer, its logs, the record of
// its end. Gone when the sandbox is. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fd.h"

namespace space {

class SandboxFiles {
 public:
  SandboxFiles(const std::string& data_dir, const std::string& sandbox_id);

  // Makes the folder with an empty top layer for a disk of `disk_bytes`, empty logs and an empty
  // exit record.
  //   errors: kConflict when it is there already, kExhausted when the disk is full
  Result<void> Create(uint64_t disk_bytes) const;
  // The whole folder; fine when it is not there.
  Result<void> Remove() const;

  std::string top_layer() const { return folder_ + "/top.layer"; }
  std::string serial_log() const { return folder_ + "/serial.log"; }
  std::string vmm_log() const { return folder_ + "/vmm.log"; }
  std::string exit_record() const { return folder_ + "/exit"; }

  static std::string Root(const std::string& data_dir) { return data_dir + "/sandboxes"; }
  // Ids of all folders.
  static Result<std::vector<std::string>> Existing(const std::string& data_dir);

 private:
  std::string folder_;
};

Result<UniqueFd> OpenAppend(const std::string& path);
// The last `limit` bytes, cut at the start of a line where there is one.
std::string ReadTail(const std::string& path, size_t limit);
// Keeps the last half of `limit` of a log that has grown beyond it. For a file that others append
// to.
void TrimLog(const std::string& path, size_t limit);

}  // namespace space
