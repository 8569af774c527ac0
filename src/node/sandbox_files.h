// The folder of one sandbox under data_dir/sandboxes: its logs, which process it has, the record of
// its end. Gone when the sandbox is. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace space {

class SandboxFiles {
 public:
  SandboxFiles(const std::string& data_dir, const std::string& sandbox_id);

  // Makes the folder with empty logs and an empty exit record.
  //   errors: kConflict when it is there already, kExhausted when the disk is full
  Result<void> Create() const;
  // For its next VM: an empty exit record, the logs go on; made when it is not there.
  Result<void> Renew() const;
  // Which process the VM is: it is in no catalog before the sandbox runs.
  Result<void> WriteProcess(int64_t pid, int64_t start_ticks) const;
  // Pid and start ticks; kNotFound when none was written.
  Result<std::pair<int64_t, int64_t>> ReadProcess() const;
  // The whole folder; fine when it is not there.
  Result<void> Remove() const;

  std::string serial_log() const { return folder_ + "/serial.log"; }
  std::string vmm_log() const { return folder_ + "/vmm.log"; }
  std::string exit_record() const { return folder_ + "/exit"; }
  std::string process() const { return folder_ + "/process"; }

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
