// Client of the guest agent's process and file services (E2B.md 3.3, 3.6, 3.7). The same for a
// sandbox behind the daemon's proxy and for the emulated host itself. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "cli/connect_wire.h"
#include "http/client.h"

namespace space::cli {

namespace asio = boost::asio;

// A connection and what has to live as long.
struct EnvdConnection {
  http::ClientConnection http;
  UniqueFd lock;
};

// Where an agent is reached. Kept alive by those who use it.
class EnvdTarget {
 public:
  virtual ~EnvdTarget() = default;
  virtual asio::awaitable<Result<EnvdConnection>> Connect() = 0;
  // Fields that every request carries.
  virtual http::Headers headers() const = 0;
  // For messages: "sandbox i0123" or "the emulated host".
  virtual std::string name() const = 0;
};

struct TerminalSize {
  uint32_t columns = 80;
  uint32_t rows = 24;
  bool operator==(const TerminalSize&) const = default;
};

struct ProcessRequest {
  std::vector<std::string> command;  // program and arguments, no shell in between
  std::map<std::string, std::string> environment;
  std::string directory;  // empty: the user's home
  std::string user = "root";
  std::optional<TerminalSize> terminal;
  bool has_input = false;
  uint64_t limit_ms = 0;  // 0: none; the agent kills the command after it
};

struct ProcessOutput {
  enum class Channel { kStdout, kStderr, kTerminal } channel = Channel::kStdout;
  std::string bytes;
};
struct ProcessEnd {
  bool is_exit = false;  // otherwise by a signal
  int code = 0;
  std::string status;  // "exit status 3", "signal: killed"
};
struct ProcessStarted {
  uint32_t pid = 0;
};
struct ProcessKeepalive {};
using ProcessEvent = std::variant<ProcessStarted, ProcessOutput, ProcessEnd, ProcessKeepalive>;

// What a shell would report: the code, or 128 and the number of the signal named in `status`.
int ExitCodeOf(const ProcessEnd& end);
Result<ProcessEvent> ParseProcessEvent(std::string_view json);

// A started process and its output.
class ProcessStream {
 public:
  // errors: kNotFound (the command, or the sandbox: see what Error says), kPermissionDenied (not
  //         executable), kUnauthenticated (user), kInvalidArgument (directory), kUnavailable,
  //         kTimeout when the agent does not say within a minute that it runs
  static asio::awaitable<Result<ProcessStream>> Start(std::shared_ptr<EnvdTarget> target,
                                                      ProcessRequest request);
  uint32_t pid() const { return pid_; }
  // kUnavailable when the stream is cut: the sandbox has died or the connection has.
  asio::awaitable<Result<ProcessEvent>> Next();
  void Close() { connection_.http.Close(); }

 private:
  ProcessStream(EnvdConnection connection, std::string name)
      : connection_(std::move(connection)), name_(std::move(name)) {}
  static asio::awaitable<Result<ProcessStream>> Begin(std::shared_ptr<EnvdTarget> target,
                                                      ProcessRequest request);
  asio::awaitable<Result<ProcessEvent>> ReadEvent();
  EnvdConnection connection_;
  std::string name_;
  EnvelopeReader reader_;
  uint32_t pid_ = 0;
};

// Unary calls to one process over a connection of their own, one at a time, in order.
class ProcessControl {
 public:
  ProcessControl(std::shared_ptr<EnvdTarget> target, uint32_t pid)
      : target_(std::move(target)), pid_(pid) {}
  asio::awaitable<Result<void>> SendInput(std::string bytes, bool to_terminal);
  asio::awaitable<Result<void>> CloseInput();
  asio::awaitable<Result<void>> Signal(int number);  // SIGTERM or SIGKILL
  asio::awaitable<Result<void>> Resize(TerminalSize size);

 private:
  asio::awaitable<Result<void>> Call(std::string method, std::string body, int limit_ms);
  std::shared_ptr<EnvdTarget> target_;
  uint32_t pid_;
  std::optional<EnvdConnection> connection_;
};

// File transfer. `user` owns what is written.
struct FilePlace {
  std::string path;
  std::string user = "root";
};
// Sends what `read` gives, until it gives nothing; `size` when it is known.
using ByteSource = std::function<asio::awaitable<Result<std::string>>()>;
using ByteSink = std::function<Result<void>(std::string_view)>;
asio::awaitable<Result<void>> UploadFile(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                         ByteSource read, std::optional<uint64_t> size);
asio::awaitable<Result<void>> DownloadFile(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                           ByteSink write);

// The message of an error body of API, proxy or agent; "HTTP 500" without one.
std::string MessageOfBody(int status, std::string_view body);

}  // namespace space::cli
