#include "layer/seal.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace space {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

// The seals of a memfd; -1 for anything else. A plain file on tmpfs answers too, and can be given
// none.
int SealsOf(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals == F_SEAL_SEAL ? -1 : seals;
}

}  // namespace

Result<void> SealLayer(int fd) {
  const int seals = SealsOf(fd);
  if (seals == -1) {
    return ::fchmod(fd, 0400) == 0 ? Result<void>() : FailErrno("protect layer");
  }
  if ((seals & kSeals) != kSeals && ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    return FailErrno("seal layer");
  }
  return {};
}

bool IsSealed(int fd) {
  if (const int seals = SealsOf(fd); seals != -1) {
    return (seals & kSeals) == kSeals;
  }
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && (info.st_mode & 0222) == 0;
}

}  // namespace space
