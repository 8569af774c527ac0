#include "cli/transfer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/random.h"
#include "machine/tool.h"

namespace space::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kTarLimit{3600};
constexpr int kLookUpMs = 100;

// Looks up now and then: a pipe or terminal may have nothing for long, and a signal ends the copy.
asio::awaitable<Result<std::string>> ReadChunk(int fd) {
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, kLookUpMs) <= 0) {
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
  }
  std::string chunk(256 * 1024, '\0');
  const ssize_t got = ::read(fd, chunk.data(), chunk.size());
  if (got < 0) {
    co_return FailErrno("read");
  }
  chunk.resize(static_cast<size_t>(got));
  co_return chunk;
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

// An archive without a name: it goes with us, however we end.
Result<UniqueFd> CreateArchive() {
  std::string path = "/tmp/space-cp-XXXXXX";
  UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return FailErrno("create", path);
  }
  (void)::unlink(path.c_str());
  return fd;
}

// For tar, which is a child of ours.
std::string PathOf(const UniqueFd& fd) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd.get());
}

// Beside its goal until it is whole; a cut copy leaves what was there.
class Draft {
 public:
  explicit Draft(const std::string& goal) : path_(goal + ".space-" + RandomHex(4)) {}
  ~Draft() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  Draft(Draft&&) = delete;
  Draft& operator=(Draft&&) = delete;
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
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

asio::awaitable<void> Forget(std::shared_ptr<EnvdTarget> target, FilePlace there) {
  std::vector<std::string> forget = {"rm", "-f", there.path};
  (void)co_await RunInside(target, there.user, std::move(forget));
}

asio::awaitable<Result<void>> FolderIn(std::shared_ptr<EnvdTarget> target, std::string source,
                                       FilePlace place, EndSignals& signals) {
  SPACE_CO_TRY(const UniqueFd archive, CreateArchive(), "copy folder");
  const std::string folder = fs::absolute(source).lexically_normal().string();
  std::vector<std::string> pack = {"-C", folder, "-cf", PathOf(archive), "."};
  SPACE_CO_TRY_VOID(RunTar(std::move(pack)), "copy folder");
  const FilePlace there{"/tmp/space-cp-" + RandomHex(8) + ".tar", place.user};
  auto upload = UploadDescriptor(target, archive.get(), there);
  Result<void> done = co_await UnlessSignalled(signals, std::move(upload));
  if (done) {
    std::vector<std::string> unpack = {
        "/bin/sh",
        "-c",
        "d=$1; [ ! -d \"$d\" ] || d=$d/$2; mkdir -p \"$d\" && tar -C \"$d\" -xf \"$3\"",
        "sh",
        place.path,
        BaseName(folder),
        there.path};
    auto running = RunInside(target, place.user, std::move(unpack));
    done = co_await UnlessSignalled(signals, std::move(running));
  }
  co_await Forget(target, there);
  co_return done;
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
  SPACE_TRY_VOID(MakeDirectories(folder, 0755), "copy folder");
  SPACE_TRY_VOID(RunTar({"-C", folder, "--no-same-owner", "--no-same-permissions",
                         "--delay-directory-restore", "-xf", archive}),
                 "copy folder");
  return Disarm(folder);
}

asio::awaitable<Result<void>> DownloadTo(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                         int fd) {
  ByteSink sink = [fd](std::string_view bytes) { return WriteFull(fd, bytes); };
  co_return co_await DownloadFile(target, std::move(place), std::move(sink));
}

asio::awaitable<Result<void>> FolderOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                        std::string into, EndSignals& signals) {
  SPACE_CO_TRY(const UniqueFd archive, CreateArchive(), "copy folder");
  FilePlace there{"/tmp/space-cp-" + RandomHex(8) + ".tar", place.user};
  // Named, since GCC 12 cannot keep a braced list alive across co_await.
  std::vector<std::string> pack = {"tar", "-C", place.path, "-cf", there.path, "."};
  auto packing = RunInside(target, place.user, std::move(pack));
  Result<void> done = co_await UnlessSignalled(signals, std::move(packing));
  if (done) {
    auto download = DownloadTo(target, there, archive.get());
    done = co_await UnlessSignalled(signals, std::move(download));
  }
  co_await Forget(target, there);
  if (!done) {
    co_return done;
  }
  const std::string goal = IsFolder(into) ? InFolder(into, BaseName(place.path)) : into;
  // Unpacked where nobody else comes: set-id programs and devices are gone before it is placed.
  const Draft draft(goal);
  SPACE_CO_TRY_VOID(MakeDirectories(draft.path(), 0700), "copy folder");
  const std::string fresh = draft.path() + "/fresh";
  SPACE_CO_TRY_VOID(Unpack(PathOf(archive), fresh), "copy folder");
  std::error_code error;
  fs::rename(fresh, goal, error);
  co_return error ? Fail(ErrorCode::kConflict, "place " + goal + ": " + error.message())
                  : Result<void>();
}

asio::awaitable<Result<void>> FileOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                      std::string goal, EndSignals& signals) {
  const Draft draft(goal);
  const UniqueFd file(::open(draft.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.valid()) {
    co_return FailErrno("write", goal);
  }
  auto download = DownloadTo(target, std::move(place), file.get());
  SPACE_CO_TRY_VOID(co_await UnlessSignalled(signals, std::move(download)), "");
  if (::rename(draft.path().c_str(), goal.c_str()) != 0) {
    co_return FailErrno("write", goal);
  }
  co_return Result<void>();
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
                                     FilePlace place, EndSignals& signals) {
  if (source == "-") {
    auto upload = UploadDescriptor(target, STDIN_FILENO, std::move(place));
    co_return co_await UnlessSignalled(signals, std::move(upload));
  }
  if (IsFolder(source)) {
    co_return co_await FolderIn(target, std::move(source), std::move(place), signals);
  }
  SPACE_CO_TRY(const UniqueFd file, OpenReadOnly(source), "read");
  if (place.path.empty() || place.path.ends_with('/')) {
    place.path += BaseName(source);
  }
  auto upload = UploadDescriptor(target, file.get(), place);
  Result<void> done = co_await UnlessSignalled(signals, std::move(upload));
  if (!done && SaysFolder(done.error()) && ::lseek(file.get(), 0, SEEK_SET) == 0) {
    place.path = InFolder(place.path, BaseName(source));
    auto again = UploadDescriptor(target, file.get(), place);
    done = co_await UnlessSignalled(signals, std::move(again));
  }
  co_return done;
}

asio::awaitable<Result<void>> CopyOut(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                      std::string into, EndSignals& signals) {
  if (into == "-") {
    auto download = DownloadTo(target, std::move(place), STDOUT_FILENO);
    co_return co_await UnlessSignalled(signals, std::move(download));
  }
  const std::string goal =
      IsFolder(into) || into.ends_with('/') ? InFolder(into, BaseName(place.path)) : into;
  Result<void> done = co_await FileOut(target, place, goal, signals);
  if (!done && SaysFolder(done.error())) {
    done = co_await FolderOut(target, std::move(place), std::move(into), signals);
  }
  co_return done;
}

}  // namespace space::cli
