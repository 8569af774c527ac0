#include "cli/envd.h"

#include <array>
#include <cstdlib>

#include <boost/json.hpp>

#include "http/deadline.h"

namespace space::cli {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswer = 1 << 20;
constexpr int kCallLimitMs = 30'000;
// An agent belongs to its guest: it may say nothing for ever.
constexpr int kStartLimitMs = 60'000;
constexpr int kStoreLimitMs = 600'000;  // of what was sent
constexpr std::string_view kProcess = "/process.Process/";

// The names that the agent gives signals, which are those of Go's runtime, by number.
constexpr std::array<std::string_view, 32> kSignalNames = {"",
                                                           "hangup",
                                                           "interrupt",
                                                           "quit",
                                                           "illegal instruction",
                                                           "trace/breakpoint trap",
                                                           "aborted",
                                                           "bus error",
                                                           "floating point exception",
                                                           "killed",
                                                           "user defined signal 1",
                                                           "segmentation fault",
                                                           "user defined signal 2",
                                                           "broken pipe",
                                                           "alarm clock",
                                                           "terminated",
                                                           "stack fault",
                                                           "child exited",
                                                           "continued",
                                                           "stopped (signal)",
                                                           "stopped",
                                                           "stopped (tty input)",
                                                           "stopped (tty output)",
                                                           "urgent I/O condition",
                                                           "CPU time limit exceeded",
                                                           "file size limit exceeded",
                                                           "virtual timer expired",
                                                           "profiling timer expired",
                                                           "window changed",
                                                           "I/O possible",
                                                           "power failure",
                                                           "bad system call"};

std::string TextOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

int64_t NumberOf(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) {
    return 0;
  }
  boost::system::error_code wrong;
  const auto number = value->to_number<int64_t>(wrong);
  return wrong ? 0 : number;
}

const json::object* Inner(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr ? nullptr : value->if_object();
}

Result<json::object> ParseObject(std::string_view text) {
  boost::system::error_code wrong;
  json::value value = json::parse(json::string_view(text.data(), text.size()), wrong);
  if (wrong || !value.is_object()) {
    return Fail(ErrorCode::kInternal, "answer is not a JSON object");
  }
  return std::move(value.get_object());
}

Result<ProcessEvent> ParseOutput(const json::object& data) {
  using Channel = ProcessOutput::Channel;
  for (const auto& [key, channel] :
       {std::pair("stdout", Channel::kStdout), std::pair("stderr", Channel::kStderr),
        std::pair("pty", Channel::kTerminal)}) {
    if (const json::value* value = data.if_contains(key); value != nullptr && value->is_string()) {
      const json::string& text = value->get_string();
      SPACE_TRY(std::string bytes, DecodeBase64({text.data(), text.size()}), "read output");
      return ProcessOutput{channel, std::move(bytes)};
    }
  }
  return ProcessKeepalive{};
}

// The error in the last envelope; kUnavailable when the stream ends without a process end.
Error ErrorOfEnd(std::string_view payload, const std::string& name) {
  const auto object = ParseObject(payload);
  const json::object* error = object ? Inner(*object, "error") : nullptr;
  if (error == nullptr) {
    return Error(ErrorCode::kUnavailable, name + ": output ended before the command did");
  }
  return Error(CodeOfConnectName(TextOf(*error, "code")), TextOf(*error, "message"));
}

std::string StartBody(const ProcessRequest& request) {
  json::object environment;
  for (const auto& [name, value] : request.environment) {
    environment[name] = value;
  }
  json::array arguments;
  for (size_t i = 1; i < request.command.size(); ++i) {
    arguments.emplace_back(request.command[i]);
  }
  json::object process = {
      {"cmd", request.command.front()}, {"args", arguments}, {"envs", environment}};
  if (!request.directory.empty()) {
    process["cwd"] = request.directory;
  }
  json::object body = {{"process", process}, {"stdin", request.has_input}};
  if (request.terminal) {
    body["pty"] = {
        {"size", {{"cols", request.terminal->columns}, {"rows", request.terminal->rows}}}};
    body["stdin"] = true;
  }
  return json::serialize(body);
}

http::RequestHead MakeHead(const EnvdTarget& target, std::string method, std::string path) {
  http::RequestHead head{std::move(method), std::move(path), target.headers()};
  head.headers.Set("User-Agent", "space-cli");
  return head;
}

}  // namespace

std::string MessageOfBody(int status, std::string_view body) {
  const auto object = ParseObject(body);
  std::string message = object ? TextOf(*object, "message") : std::string();
  return message.empty() ? "HTTP " + std::to_string(status) : message;
}

int ExitCodeOf(const ProcessEnd& end) {
  if (end.is_exit) {
    return end.code;
  }
  constexpr std::string_view kPrefix = "signal: ";
  std::string_view name = end.status;
  if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
  }
  name = name.substr(0, name.find(" (core dumped)"));
  for (size_t number = 1; number < kSignalNames.size(); ++number) {
    if (name == kSignalNames[number]) {
      return 128 + static_cast<int>(number);
    }
  }
  if (name.starts_with("signal ")) {  // real-time signals have numbers only
    const int number = std::atoi(std::string(name.substr(7)).c_str());
    return number > 0 && number < 65 ? 128 + number : 255;
  }
  return 255;
}

Result<ProcessEvent> ParseProcessEvent(std::string_view text) {
  SPACE_TRY(const json::object message, ParseObject(text), "read event");
  const json::object* event = Inner(message, "event");
  if (event == nullptr) {
    return ProcessKeepalive{};
  }
  if (const json::object* start = Inner(*event, "start")) {
    return ProcessStarted{static_cast<uint32_t>(NumberOf(*start, "pid"))};
  }
  if (const json::object* data = Inner(*event, "data")) {
    return ParseOutput(*data);
  }
  if (const json::object* end = Inner(*event, "end")) {
    const json::value* exited = end->if_contains("exited");
    ProcessEnd result;
    result.is_exit = exited != nullptr && exited->is_bool() && exited->get_bool();
    result.code = static_cast<int>(NumberOf(*end, "exitCode")) & 0xff;
    result.status = TextOf(*end, "status");
    return result;
  }
  return ProcessKeepalive{};
}

asio::awaitable<Result<ProcessStream>> ProcessStream::Start(std::shared_ptr<EnvdTarget> target,
                                                            ProcessRequest request) {
  auto begun = co_await http::WithDeadline(Begin(target, std::move(request)), kStartLimitMs);
  if (!begun && begun.error().code() == ErrorCode::kTimeout) {
    co_return Fail(std::move(begun).error().While(target->name() + ": start the command"));
  }
  co_return begun;
}

asio::awaitable<Result<ProcessStream>> ProcessStream::Begin(std::shared_ptr<EnvdTarget> target,
                                                            ProcessRequest request) {
  auto connection = co_await target->Connect();
  if (!connection) {
    // Whatever its code: it is not the command that is missing.
    co_return Fail(ErrorCode::kUnavailable, connection.error().message());
  }
  ProcessStream stream(*std::move(connection), target->name());
  http::RequestHead head = MakeHead(*target, "POST", std::string(kProcess) + "Start");
  head.headers.Set("Content-Type", "application/connect+json");
  head.headers.Set("Connect-Protocol-Version", "1");
  head.headers.Set("Keepalive-Ping-Interval", "20");
  head.headers.Set("Authorization", "Basic " + EncodeBase64(request.user + ":"));
  if (request.limit_ms != 0) {
    head.headers.Set("Connect-Timeout-Ms", std::to_string(request.limit_ms));
  }
  const std::string body = MakeEnvelope(StartBody(request));
  http::ClientConnection& http = stream.connection_.http;
  SPACE_CO_TRY_VOID(co_await http.Send(std::move(head), body.size()), target->name());
  SPACE_CO_TRY_VOID(co_await http.Write(body), target->name());
  SPACE_CO_TRY_VOID(co_await http.FinishRequest(), target->name());
  SPACE_CO_TRY(const http::ResponseHead answer, co_await http.ReadHead(), target->name());
  if (answer.status != 200) {
    const auto text = co_await http.ReadAll(kMaxAnswer);
    co_return Fail(CodeOfStatus(answer.status) == ErrorCode::kNotFound
                       ? ErrorCode::kUnavailable
                       : CodeOfStatus(answer.status),
                   target->name() + ": " + MessageOfBody(answer.status, text.value_or("")));
  }
  auto first = co_await stream.ReadEvent();
  if (!first) {
    co_return Fail(std::move(first).error());
  }
  const auto* started = std::get_if<ProcessStarted>(&*first);
  if (started == nullptr) {
    co_return Fail(ErrorCode::kInternal, target->name() + ": agent did not report a start");
  }
  stream.pid_ = started->pid;
  co_return stream;
}

asio::awaitable<Result<ProcessEvent>> ProcessStream::ReadEvent() {
  std::array<char, 32768> chunk;
  while (true) {
    SPACE_CO_TRY(const auto envelope, reader_.Next(), name_);
    if (envelope && (envelope->flags & kEndOfStream) != 0) {
      co_return Fail(ErrorOfEnd(envelope->payload, name_));
    }
    if (envelope) {
      co_return ParseProcessEvent(envelope->payload);
    }
    const auto got = co_await connection_.http.Read(chunk);
    if (!got || *got == 0) {
      co_return Fail(ErrorCode::kUnavailable, name_ + ": the connection was cut");
    }
    reader_.Feed({chunk.data(), *got});
  }
}

asio::awaitable<Result<ProcessEvent>> ProcessStream::Next() { co_return co_await ReadEvent(); }

asio::awaitable<Result<void>> ProcessControl::Call(std::string method, std::string body,
                                                   int limit_ms) {
  if (!connection_ || !connection_->http.reusable()) {
    connection_.reset();
    SPACE_CO_TRY(connection_, co_await target_->Connect(), "connect");
  }
  http::RequestHead head = MakeHead(*target_, "POST", std::string(kProcess) + method);
  head.headers.Set("Content-Type", "application/json");
  head.headers.Set("Connect-Protocol-Version", "1");
  auto answer = co_await http::Call(connection_->http, std::move(head), std::move(body), kMaxAnswer,
                                    limit_ms);
  if (!answer) {
    connection_.reset();
    co_return Fail(std::move(answer).error());
  }
  if (answer->head.status != 200) {
    co_return Fail(CodeOfStatus(answer->head.status),
                   MessageOfBody(answer->head.status, answer->body));
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> ProcessControl::SendInput(std::string bytes, bool to_terminal) {
  const json::object body = {{"process", {{"pid", pid_}}},
                             {"input", {{to_terminal ? "pty" : "stdin", EncodeBase64(bytes)}}}};
  // A command that does not read holds us back for as long as it likes.
  constexpr int kPatienceMs = 24 * 3600 * 1000;
  co_return co_await Call("SendInput", json::serialize(body), kPatienceMs);
}

asio::awaitable<Result<void>> ProcessControl::CloseInput() {
  const json::object body = {{"process", {{"pid", pid_}}}};
  co_return co_await Call("CloseStdin", json::serialize(body), kCallLimitMs);
}

asio::awaitable<Result<void>> ProcessControl::Signal(int number) {
  const json::object body = {{"process", {{"pid", pid_}}},
                             {"signal", number == 9 ? "SIGNAL_SIGKILL" : "SIGNAL_SIGTERM"}};
  co_return co_await Call("SendSignal", json::serialize(body), kCallLimitMs);
}

asio::awaitable<Result<void>> ProcessControl::Resize(TerminalSize size) {
  const json::object body = {{"process", {{"pid", pid_}}},
                             {"pty", {{"size", {{"cols", size.columns}, {"rows", size.rows}}}}}};
  co_return co_await Call("Update", json::serialize(body), kCallLimitMs);
}

namespace {

std::string FilesTarget(const FilePlace& place) {
  return "/files?path=" + http::PercentEncode(place.path) +
         "&username=" + http::PercentEncode(place.user);
}

asio::awaitable<Error> FileError(http::ClientConnection& http, int status, std::string name) {
  const auto text = co_await http.ReadAll(kMaxAnswer);
  co_return Error(CodeOfStatus(status), name + ": " + MessageOfBody(status, text.value_or("")));
}

}  // namespace

asio::awaitable<Result<void>> UploadFile(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                         ByteSource read, std::optional<uint64_t> size) {
  SPACE_CO_TRY(EnvdConnection connection, co_await target->Connect(), "connect");
  http::RequestHead head = MakeHead(*target, "POST", FilesTarget(place));
  head.headers.Set("Content-Type", "application/octet-stream");
  SPACE_CO_TRY_VOID(co_await connection.http.Send(std::move(head), size), target->name());
  while (size != 0U) {
    SPACE_CO_TRY(const std::string bytes, co_await read(), "read");
    if (bytes.empty()) {
      break;
    }
    if (!co_await connection.http.Write(bytes)) {
      break;  // an early refusal closes the way in; its answer says why
    }
  }
  if (size != 0U) {
    (void)co_await connection.http.FinishRequest();
  }
  SPACE_CO_TRY(const http::ResponseHead answer,
               co_await http::WithDeadline(connection.http.ReadHead(), kStoreLimitMs),
               target->name());
  if (answer.status != 200) {
    co_return Fail(co_await FileError(connection.http, answer.status, target->name()));
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> DownloadFile(std::shared_ptr<EnvdTarget> target, FilePlace place,
                                           ByteSink write) {
  SPACE_CO_TRY(EnvdConnection connection, co_await target->Connect(), "connect");
  http::RequestHead head = MakeHead(*target, "GET", FilesTarget(place));
  head.headers.Set("Accept-Encoding", "identity");
  SPACE_CO_TRY_VOID(co_await connection.http.Send(std::move(head), 0), target->name());
  SPACE_CO_TRY(const http::ResponseHead answer,
               co_await http::WithDeadline(connection.http.ReadHead(), kStartLimitMs),
               target->name());
  if (answer.status != 200) {
    co_return Fail(co_await FileError(connection.http, answer.status, target->name()));
  }
  std::array<char, 65536> chunk;
  while (true) {
    SPACE_CO_TRY(const size_t got, co_await connection.http.Read(chunk), target->name());
    if (got == 0) {
      co_return Result<void>();
    }
    SPACE_CO_TRY_VOID(write({chunk.data(), got}), "write");
  }
}

}  // namespace space::cli
