#include "agent/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agent/file_tree.h"
#include "agent/paths.h"

namespace space::agent {

Result<FileWriter> FileWriter::Create(const std::string& path, const User& user) {
  auto parents = MakeFolders(std::string(ParentPath(path)), user);
  if (!parents) {
    return Fail(std::move(parents).error());
  }
  // O_NONBLOCK: a pipe in the file's place would stop the agent until somebody reads it.
  UniqueFd fd(
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666));
  if (!fd.valid()) {
    if (errno == EISDIR) {
      return Fail(ErrorCode::kInvalidArgument, "path '" + path + "' is a directory");
    }
    return FailErrno("open", path);
  }
  struct stat info {};
  if (fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) &&
      fchown(fd.get(), user.uid, user.gid) < 0) {
    return FailErrno("give to user", path);
  }
  return FileWriter(path, std::move(fd));
}

Result<void> FileWriter::Write(std::string_view bytes) {
  auto written = WriteFull(fd_.get(), bytes);
  if (!written) {
    return Fail(std::move(written).error().While("write " + path_));
  }
  return {};
}

Result<void> FileWriter::Finish(const Metadata& metadata) {
  auto stored = WriteMetadata(fd_.get(), metadata);
  fd_ = UniqueFd();
  return stored;
}

}  // namespace space::agent
