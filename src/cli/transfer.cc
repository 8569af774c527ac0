#include "cli/transfer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>

#include "base/random.h"
#include "machine/tool.h"

namespace space::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTarLimit{3600};

Result<std::string> ReadChunk(int fd) {
  std::string chunk(256 * 1024, '\0');
  while (true) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read");
    }
    chunk.resize(static_cast<size_t>(got));
    return chunk;
  }
}

ByteSource SourceOf(int fd) {
  return [fd] { return ReadChunk(fd); };
}

std::string BaseName(const std::string& path) {
  const fs::path clean = fs::path(path).lexically_normal();
  return (clean.has_filename() ? clean.filename() : clean.parent_path().filename()).string();
}

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The agent refuses to write over or to read a folder by this code and word.
bool SaysFolder(const Error& error) {
  return error.code() == ErrorCode::kInvalidArgument &&
         error.message().find("directory") != std::string::npos;
}

std::string InFolder(const std::string& folder, const std::string& name) {
  return folder.ends_with('/') ? folder + name : folder + "/" + name;
}

// Takes back a temporary archive whatever happens.
class TemporaryFile {
 public:
  TemporaryFile() : path_("/tmp/space-cp-" + RandomHex(8) + ".tar") {}
  ~TemporaryFile() { (void)::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  TemporaryFile(TemporaryFile&&) = delete;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<void> RunTar(std::vector<std::string> arguments) {
  SPACE_TRY(const std::string tar, machine::FindProgram("tar", "tar"), "copy folder");
  SPACE_TRY(const machine::ToolResult done,
            machine::RunTool(tar, std::move(arguments), "", kTarLimit), "tar");
  if (done.status.by_signal || done.status.value != 0) {
    return Fail(ErrorCode::kIo, "tar: " + done.output);
  }
  return {};
}

// A shell script in the sandbox with its arguments as $1, $2...; kInvalidArgument with its output.
asio::awaitable<Result<void>> RunInside(std::shared_ptr<EnvdTarget> target, std::string user,
                                        std::vector<std::string> command) {
  ProcessRequest request;
  request.command = std::move(command);
  request.user = std::move(user);
  SPACE_CO_TRY(ProcessStream stream, co_await ProcessStream::Start(target, std::move(request)),
               target->name());
  std::string output;
  while (true) {
    SPACE_CO_TRY(const ProcessEvent event, co_await stream.Next(), target->name());
    const auto* bytes = std::get_if<ProcessOutput>(&event);
    if (bytes != nullptr && output.size() < 4096) {
      output += bytes->bytes;
    }
    if (const auto* end = std::get_if<ProcessEnd>(&event)) {
      if (ExitCodeOf(*end) == 0) {
        co_return Result<void>();
      }
      co_return Fail(ErrorCode::kInvalidArgument, target->name() + ": " + output);
    }
  }
}

asio::awaitable<Result<void>> UploadDescriptor(std::shared_ptr<EnvdTarget> target, int fd,
                                               FilePlace place) {
  std::optional<uint64_t> size;
  struct stat info = {};
  if (::fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    size = static_cast<uint64_t>(info.st_size);
  }
  co_return co_await UploadFile(target, std::move(place), SourceOf(fd), size);
}

asio::awaitable<Result<void>> FolderIn(std::shared_ptr<EnvdTarget> target, std::string source,
                                       FilePlace place) {
  const TemporaryFile archive;
  const std::string folder = fs::absolute(source).lexically_normal().string();
  std::vector<std::string> pack = {"-C", folder, "-cf", archive.path(), "."};
  SPACE_CO_TRY_VOID(RunTar(std::move(pack)), "copy folder");
  SPACE_CO_TRY(const UniqueFd file, OpenReadOnly(archive.path()), "copy folder");
  FilePlace there{"/tmp/" + BaseName(archive.path()), place.user};
  SPACE_CO_TRY_VOID(co_await UploadDescriptor(target, file.get(), there), "copy folder");
  std::vector<std::string> unpack = {
      "/bin/sh",
      "-c",
      "d=$1; [ ! -d \"$d\" ] || d=$d/$2; mkdir -p \"$d\" && tar -C \"$d\" -xf \"$3\"; c=$?; "
      "rm -f \"$3\"; exit $c",
      "sh",
      place.path,
      BaseName(folder),
      there.path};
  co_return co_await RunInside(target, place.user, std::move(unpack));
}

// tar itself refuses ".." and absolute names; what is left to refuse is what root may make.
Result<void> Disarm(const std::string& folder) {
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const fs::file_status status = entry->symlink_status(error);
    if (!fs::is_regular_file(status) && !fs::is_directory(status) && !fs::is_symlink(status)) {
      fs::remove(entry->path(), error);
    } else if (!fs::is_symlink(status)) {
      fs::permissions(entry->path(), fs::perms::set_uid | fs::perms::set_gid,
                      fs::perm_options::remove, error);
    }
  }
  return error ? Fail(ErrorCode::kIo, "look through " + folder + ": " + error.message())
               : Result<void>();
}

Result<void> Unpack(const std::string& archive, const std::string& folder) {
  SPACE_TRY_VOID(MakeDirectories(folder, 0700), "copy folder");
  SPACE_TRY_VOID(
      RunTar({"-C", folder, "--no-same-owner", "--delay-directory-restore", "-xf", archive}),
      "copy folder");
  return Disarm(folder);
}

asio::awaitable<Result<void>> DownloadTo(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                         int fd) {
  ByteSink sink = [fd](std::string_view bytes) { return WriteFull(fd, bytes); };
  co_return co_await DownloadFile(target, std::move(place), std::move(sink));
}

asio::awaitable<Result<void>> FolderOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                        std::string into) {
  const TemporaryFile archive;
  const std::string there = "/tmp/" + BaseName(archive.path());
  // Named, since GCC 12 cannot keep a braced list alive across co_await.
  std::vector<std::string> pack = {"tar", "-C", place.path, "-cf", there, "."};
  SPACE_CO_TRY_VOID(co_await RunInside(target, place.user, std::move(pack)), "copy folder");
  Result<void> fetched;
  {
    SPACE_CO_TRY(const UniqueFd file, CreateExclusive(archive.path()), "copy folder");
    FilePlace remote{there, place.user};
    fetched = co_await DownloadTo(target, std::move(remote), file.get());
  }
  std::vector<std::string> forget = {"rm", "-f", there};
  (void)co_await RunInside(target, place.user, std::move(forget));
  if (!fetched) {
    co_return fetched;
  }
  const std::string goal = IsFolder(into) ? InFolder(into, BaseName(place.path)) : into;
  const std::string fresh = goal + ".space-" + RandomHex(4);
  auto unpacked = Unpack(archive.path(), fresh);
  std::error_code error;
  if (unpacked) {
    fs::rename(fresh, goal, error);
    if (error) {
      unpacked = Fail(ErrorCode::kConflict, "place " + goal + ": " + error.message());
    }
  }
  fs::remove_all(fresh, error);
  co_return unpacked;
}

// Beside the goal first, so that a cut copy leaves what was there.
asio::awaitable<Result<void>> FileOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                      std::string goal) {
  const std::string fresh = goal + ".space-" + RandomHex(4);
  Result<void> done;
  {
    UniqueFd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) {
      co_return FailErrno("write", goal);
    }
    done = co_await DownloadTo(target, std::move(place), file.get());
  }
  if (done && ::rename(fresh.c_str(), goal.c_str()) != 0) {
    done = FailErrno("write", goal);
  }
  if (!done) {
    (void)::unlink(fresh.c_str());
  }
  co_return done;
}

}  // namespace

CopyPlace ParseCopyPlace(const std::string& text) {
  const size_t colon = text.find(':');
  // "./a:b" and "/a:b" are files here.
  if (colon == std::string::npos || colon == 0 || text.find('/') < colon) {
    return {"", text};
  }
  return {text.substr(0, colon), text.substr(colon + 1)};
}

asio::awaitable<Result<void>> CopyIn(std::shared_ptr<EnvdTarget> target, std::string source,
                                     FilePlace place) {
  if (source == "-") {
    co_return co_await UploadDescriptor(target, STDIN_FILENO, std::move(place));
  }
  if (IsFolder(source)) {
    co_return co_await FolderIn(target, std::move(source), std::move(place));
  }
  SPACE_CO_TRY(const UniqueFd file, OpenReadOnly(source), "read");
  if (place.path.empty() || place.path.ends_with('/')) {
    place.path += BaseName(source);
  }
  auto done = co_await UploadDescriptor(target, file.get(), place);
  if (!done && SaysFolder(done.error()) && ::lseek(file.get(), 0, SEEK_SET) == 0) {
    place.path = InFolder(place.path, BaseName(source));
    done = co_await UploadDescriptor(target, file.get(), place);
  }
  co_return done;
}

asio::awaitable<Result<void>> CopyOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                      std::string into) {
  if (into == "-") {
    co_return co_await DownloadTo(target, std::move(place), STDOUT_FILENO);
  }
  const std::string goal =
      IsFolder(into) || into.ends_with('/') ? InFolder(into, BaseName(place.path)) : into;
  auto done = co_await FileOut(target, place, goal);
  if (!done && SaysFolder(done.error())) {
    done = co_await FolderOut(target, std::move(place), std::move(into));
  }
  co_return done;
}

}  // namespace space::cli
