#include "machine/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>

#include "base/fd.h"

namespace space::machine {
namespace {

constexpr size_t kKeptOutput = 64 * 1024;
constexpr std::string_view kSbin = "/usr/local/sbin:/usr/sbin:/sbin";

std::string SearchPath() {
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return std::string(path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path) + ":" +
         std::string(kSbin);
}

// The input is small (a list of commands): a memory file needs no writer beside the reader.
Result<UniqueFd> InputFile(std::string_view input) {
  SPACE_TRY(UniqueFd file, CreateMemfd("tool-input"), "prepare input");
  SPACE_TRY_VOID(WriteFull(file.get(), input), "prepare input");
  if (::lseek(file.get(), 0, SEEK_SET) < 0) {
    return FailErrno("rewind input");
  }
  return file;
}

Result<std::string> CollectOutput(int fd, std::chrono::steady_clock::time_point deadline) {
  std::string output;
  std::array<char, 16384> chunk;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry = {fd, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&entry, 1, static_cast<int>(left.count()));
    if (ready == 0) {
      return Fail(ErrorCode::kTimeout, "no end within the time limit");
    }
    const ssize_t got = ready < 0 ? -1 : ::read(fd, chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return FailErrno("read output");
    }
    if (got == 0) {
      return output;
    }
    output.append(chunk.data(), static_cast<size_t>(got));
    if (output.size() > kKeptOutput) {
      output.erase(0, output.size() - kKeptOutput);
    }
  }
}

}  // namespace

Result<std::string> FindProgram(const std::string& name, const std::string& package) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), X_OK) == 0) {
      return name;
    }
    return FailErrno("find program", name);
  }
  const std::string path = SearchPath();
  for (size_t from = 0; from <= path.size();) {
    const size_t colon = std::min(path.find(':', from), path.size());
    const std::string candidate = path.substr(from, colon - from) + "/" + name;
    if (candidate.front() == '/' && candidate.size() > name.size() + 1 &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
    from = colon + 1;
  }
  return Fail(ErrorCode::kNotFound,
              name + " is not installed; apt-get install " + "--no-install-recommends " + package);
}

Result<ToolResult> RunTool(const std::string& program, std::vector<std::string> arguments,
                           std::string_view input, std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  SPACE_TRY(const UniqueFd in, InputFile(input), program);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return FailErrno("make pipe");
  }
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  SpawnSpec spec;
  spec.program = program;
  spec.arguments = std::move(arguments);
  spec.environment = {"PATH=" + SearchPath(), "LC_ALL=C"};
  spec.stdin_fd = in.get();
  spec.stdout_fd = to.get();
  spec.stderr_fd = to.get();
  SPACE_TRY(ChildProcess child, ChildProcess::Spawn(spec), "run tool");
  to = UniqueFd();
  SPACE_TRY(std::string output, CollectOutput(from.get(), deadline), program);
  SPACE_TRY(const auto status, child.Wait(std::chrono::seconds(10)), program);
  if (!status) {
    return Fail(ErrorCode::kTimeout, "program closed its output but did not end", program);
  }
  return ToolResult{*status, std::move(output)};
}

}  // namespace space::machine
