// The ext4 disks that carry files into the emulated host. Made without mounting anything, and only
// when what is in them has changed. Blocking.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::machine {

struct DiskFile {
  std::string source;  // on the host
  std::string target;  // path on the disk, without a leading slash
  unsigned mode = 0644;
};

using Progress = std::function<void(const std::string&)>;

// Makes `image` hold exactly `files`, or leaves it when its stamp (image + ".stamp") says that it
// does: same targets, sources, sizes and times. Written beside and renamed, so a cut run leaves the
// old one.
//   errors: kNotFound for a source, kExhausted without room, kInternal when e2fsprogs refuses
Result<void> MakeDisk(const std::string& image, const std::string& label,
                      const std::vector<DiskFile>& files, const Progress& progress);

// A sparse file of `size_bytes` unless there is one; a bigger size makes it grow.
Result<void> MakeSparseFile(const std::string& path, uint64_t size_bytes);

}  // namespace space::machine
