#include "agent/process_service.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>

#include "agent/access.h"
#include "agent/environment.h"
#include "agent/paths.h"
#include "agent/process_stream.h"
#include "agent/text_file.h"

namespace space::agent {
namespace {

namespace pb = rpc::process;

Result<std::string> WorkingDirectory(const pb::ProcessConfig& config, const User& user,
                                     const Settings& settings) {
  const bool is_asked = config.has_cwd() && !config.cwd().empty();
  auto cwd = ResolvePath(is_asked ? std::string_view(config.cwd()) : std::string_view(), user,
                         settings.default_workdir);
  if (!cwd) {
    return cwd;
  }
  struct stat info {};
  if (stat(cwd->c_str(), &info) < 0) {
    if (!is_asked) {
      return "/";  // a user without a home
    }
    return Fail(ErrorCode::kInvalidArgument, "cwd '" + *cwd + "' does not exist");
  }
  if (!S_ISDIR(info.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument, "cwd '" + *cwd + "' is not a directory");
  }
  return cwd;
}

uint16_t Clamp(uint32_t cells, uint16_t fallback) {
  return cells == 0 ? fallback : static_cast<uint16_t>(std::min<uint32_t>(cells, 0xffff));
}

std::optional<TerminalSize> SizeOf(bool has_pty, const pb::PTY& pty) {
  if (!has_pty) {
    return std::nullopt;
  }
  return TerminalSize{.columns = Clamp(pty.size().cols(), 80),
                      .rows = Clamp(pty.size().rows(), 24)};
}

asio::awaitable<Result<void>> WriteInput(ProcessTable& table, const pb::ProcessSelector& selector,
                                         pb::ProcessInput& input) {
  auto process = table.FindRunning(selector);
  if (!process) {
    co_return Fail(std::move(process).error());
  }
  if (input.input_case() == pb::ProcessInput::INPUT_NOT_SET) {
    co_return Fail(ErrorCode::kInvalidArgument, "input has neither stdin nor pty");
  }
  const bool to_terminal = input.has_pty();
  std::string bytes = std::move(to_terminal ? *input.mutable_pty() : *input.mutable_stdin());
  co_return co_await (*process)->WriteInput(std::move(bytes), to_terminal);
}

}  // namespace

asio::awaitable<void> ProcessService::Serve(RpcCall& call, std::string_view method) {
  if (method == "Start") {
    co_return co_await Start(call);
  }
  if (method == "Connect") {
    co_return co_await Connect(call);
  }
  if (method == "List") {
    co_return co_await List(call);
  }
  Result<void> done = Fail(ErrorCode::kUnimplemented, "unknown method", method);
  if (method == "Update") {
    done = co_await Update(call);
  } else if (method == "SendInput") {
    done = co_await SendInput(call);
  } else if (method == "StreamInput") {
    done = co_await StreamInput(call);
  } else if (method == "SendSignal") {
    done = co_await SendSignal(call);
  } else if (method == "CloseStdin") {
    done = co_await CloseStdin(call);
  }
  if (done) {
    co_await call.Respond(pb::Empty());
  } else {
    co_await call.RespondError(std::move(done).error());
  }
}

Result<SpawnRequest> ProcessService::MakeSpawnRequest(const http::RequestHead& head,
                                                      const pb::ProcessConfig& config) const {
  if (freezer_.is_frozen()) {
    // Not kept for later: a command that waits here would run in every copy of the snapshot.
    return Fail(ErrorCode::kUnavailable, "the sandbox is frozen for a snapshot");
  }
  if (config.cmd().empty() || config.cmd().find('\0') != std::string::npos) {
    return Fail(ErrorCode::kInvalidArgument, "process.cmd is empty or has a NUL byte");
  }
  auto user = SelectUser(head, std::nullopt, settings_);
  if (!user) {
    return Fail(std::move(user).error());
  }
  auto cwd = WorkingDirectory(config, *user, settings_);
  if (!cwd) {
    return Fail(std::move(cwd).error());
  }
  const Environment image =
      ParseEnvironmentFile(ReadRegularFile("/etc/environment", 64 * 1024).value_or(""));
  const Environment asked(config.envs().begin(), config.envs().end());
  auto environment = ComposeEnvironment(image, *user, settings_.environment, asked);
  if (!environment) {
    return Fail(std::move(environment).error());
  }
  SpawnRequest request;
  request.command = config.cmd();
  request.arguments.assign(config.args().begin(), config.args().end());
  for (const std::string& argument : request.arguments) {
    if (argument.find('\0') != std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument, "process.args has a NUL byte");
    }
  }
  request.environment = AsStrings(*environment);
  request.cwd = *std::move(cwd);
  request.user = *std::move(user);
  request.cgroup_fd = freezer_.user_group_fd();
  return request;
}

asio::awaitable<void> ProcessService::Start(RpcCall& call) {
  pb::StartRequest request;
  auto read = co_await call.ReadRequest(request);
  if (!read) {
    co_return co_await call.RespondError(std::move(read).error());
  }
  auto room = table_.CheckRoom();
  auto spawn = MakeSpawnRequest(call.request(), request.process());
  if (!room || !spawn) {
    co_return co_await call.RespondError(room ? std::move(spawn).error() : std::move(room).error());
  }
  const bool wants_stdin = !request.has_stdin() || request.stdin();
  auto started = Process::Start(table_.executor(), *std::move(spawn), wants_stdin,
                                SizeOf(request.has_pty(), request.pty()));
  if (!started) {
    co_return co_await call.RespondError(std::move(started).error());
  }
  const std::shared_ptr<Process> process = *started;
  ProcessTable::Entry entry{.process = process,
                            .config = std::move(*request.mutable_process()),
                            .tag = std::nullopt,
                            .ended = std::nullopt};
  if (request.has_tag()) {
    entry.tag = request.tag();
  }
  table_.Add(std::move(entry));
  const auto subscription = process->Subscribe();
  if (call.deadline() != Clock::time_point::max()) {
    process->KillAt(call.deadline(), subscription);
  }
  co_await StreamProcess(call, process, subscription, Clock::time_point::max());
}

asio::awaitable<void> ProcessService::Connect(RpcCall& call) {
  pb::ConnectRequest request;
  auto read = co_await call.ReadRequest(request);
  if (!read) {
    co_return co_await call.RespondError(std::move(read).error());
  }
  auto process = table_.Find(request.process());
  if (!process) {
    co_return co_await call.RespondError(std::move(process).error());
  }
  co_await StreamProcess(call, *process, (*process)->Subscribe(), call.deadline());
}

asio::awaitable<void> ProcessService::List(RpcCall& call) {
  pb::ListRequest request;
  auto read = co_await call.ReadRequest(request);
  if (!read) {
    co_return co_await call.RespondError(std::move(read).error());
  }
  pb::ListResponse response;
  for (const ProcessTable::Entry* entry : table_.Running()) {
    pb::ProcessInfo* info = response.add_processes();
    *info->mutable_config() = entry->config;
    info->set_pid(static_cast<uint32_t>(entry->process->pid()));
    if (entry->tag) {
      info->set_tag(*entry->tag);
    }
  }
  co_await call.Respond(response);
}

asio::awaitable<Result<void>> ProcessService::Update(RpcCall& call) {
  pb::UpdateRequest request;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(request), "update");
  auto process = table_.FindRunning(request.process());
  if (!process) {
    co_return Fail(std::move(process).error());
  }
  if (!request.has_pty() || !request.pty().has_size()) {
    co_return Result<void>();
  }
  co_return (*process)->Resize(*SizeOf(true, request.pty()));
}

asio::awaitable<Result<void>> ProcessService::SendInput(RpcCall& call) {
  pb::SendInputRequest request;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(request), "send input");
  co_return co_await WriteInput(table_, request.process(), *request.mutable_input());
}

asio::awaitable<Result<void>> ProcessService::StreamInput(RpcCall& call) {
  pb::ProcessSelector selector;
  while (true) {
    pb::StreamInputRequest request;
    SPACE_CO_TRY(const bool has_message, co_await call.ReadNext(request), "stream input");
    if (!has_message) {
      co_return Result<void>();
    }
    if (request.has_start()) {
      selector = request.start().process();
      auto process = table_.FindRunning(selector);
      if (!process) {
        co_return Fail(std::move(process).error());
      }
    } else if (request.has_data()) {
      auto written =
          co_await WriteInput(table_, selector, *request.mutable_data()->mutable_input());
      if (!written) {
        co_return written;
      }
    }
  }
}

asio::awaitable<Result<void>> ProcessService::SendSignal(RpcCall& call) {
  pb::SendSignalRequest request;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(request), "send signal");
  auto process = table_.FindRunning(request.process());
  if (!process) {
    co_return Fail(std::move(process).error());
  }
  if (request.signal() != pb::SIGNAL_SIGKILL && request.signal() != pb::SIGNAL_SIGTERM) {
    co_return Fail(ErrorCode::kUnimplemented,
                   "signal " + std::to_string(request.signal()) + " is not supported");
  }
  co_return (*process)->Signal(request.signal());
}

asio::awaitable<Result<void>> ProcessService::CloseStdin(RpcCall& call) {
  pb::CloseStdinRequest request;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(request), "close stdin");
  auto process = table_.FindRunning(request.process());
  if (!process) {
    co_return Fail(std::move(process).error());
  }
  co_return co_await (*process)->CloseStdin();
}

}  // namespace space::agent
