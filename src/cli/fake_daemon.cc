#include "cli/fake_daemon.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <tuple>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>

#include "cli/connect_wire.h"

namespace space::cli {

namespace asio = http::asio;
namespace json = boost::json;

namespace {

constexpr const char* kId = "i00000000000000000001";

http::ResponseHead Json(int status) { return {status, {{"Content-Type", "application/json"}}}; }

std::string ErrorBody(int status, const std::string& message) {
  return json::serialize(json::object{{"code", status}, {"message", message}});
}

std::string Output(const char* channel, const std::string& bytes) {
  return MakeEnvelope(
      json::serialize(json::object{{"event", {{"data", {{channel, EncodeBase64(bytes)}}}}}}));
}

std::string End(int code, const std::string& status, bool is_exit) {
  return MakeEnvelope(json::serialize(json::object{
             {"event",
              {{"end", {{"exitCode", code}, {"exited", is_exit}, {"status", status}}}}}})) +
         std::string("\2\0\0\0\2{}", 7);
}

std::string StreamError(const std::string& code, const std::string& message) {
  std::string text = MakeEnvelope(
      json::serialize(json::object{{"error", {{"code", code}, {"message", message}}}}));
  text[0] = 2;
  return text;
}

}  // namespace

FakeDaemon::FakeDaemon() {
  server_ = std::make_unique<http::Server>(
      io_.get_executor(), [this](http::Exchange& exchange) { return Serve(exchange); });
  UniqueFd listener = http::ListenTcp("127.0.0.1:0").value();
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  SPACE_CHECK(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  SPACE_CHECK(server_->Serve(std::move(listener)).has_value());
  thread_ = std::thread([this] { io_.run(); });
}

FakeDaemon::~FakeDaemon() {
  io_.stop();
  thread_.join();
}

std::vector<std::string> FakeDaemon::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::map<std::string, std::string> FakeDaemon::files() const {
  const std::lock_guard lock(mutex_);
  return files_;
}

void FakeDaemon::PutFile(const std::string& path, std::string content) {
  const std::lock_guard lock(mutex_);
  files_[path] = std::move(content);
}

size_t FakeDaemon::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

asio::awaitable<void> FakeDaemon::Serve(http::Exchange& exchange) {
  std::string body = (co_await exchange.ReadAll(64 << 20)).value_or("");
  const http::RequestHead& head = exchange.request();
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(head.method + " " + head.target + " " + body.substr(0, 1000));
  }
  if (head.headers.Find("E2b-Sandbox-Id")) {
    if (head.target.starts_with("/files")) {
      co_return co_await ServeFiles(exchange, std::move(body));
    }
    co_return co_await ServeProcess(exchange, std::move(body));
  }
  co_return co_await ServeApi(exchange, std::move(body));
}

std::optional<std::pair<int, std::string>> FakeDaemon::AnswerBranch(const std::string& method,
                                                                    const std::string& target) {
  using Answer = std::pair<int, std::string>;
  const std::string snapshot =
      std::string(R"({"snapshotID":"tsnap:default","names":[],"sandboxID":")") + kId +
      R"(","timings":{"pauseUs":1234}})";
  const std::lock_guard lock(mutex_);
  if (target.ends_with("/pause")) {
    const bool was_paused = std::exchange(is_paused_, true);
    return was_paused ? Answer(409, ErrorBody(409, "it is paused already")) : Answer(204, "");
  }
  if (target.ends_with("/connect")) {
    const bool was_paused = std::exchange(is_paused_, false);
    return Answer(was_paused ? 201 : 200, std::string(R"({"sandboxID":")") + kId + "\"}");
  }
  if (target.ends_with("/fork")) {
    return Answer(201, R"({"results":[{"sandbox":{"sandboxID":"icopy0"}},)"
                       R"({"error":{"code":503,"message":"no room for one more"}},)"
                       R"({"sandbox":{"sandboxID":"icopy1"}}],"timings":{"pauseUs":1234}})");
  }
  if (method == "GET" && target.starts_with("/space/v1/snapshots")) {
    return Answer(200, target.find('?') == std::string::npos ? snapshot : "[" + snapshot + "]");
  }
  if (target.ends_with("/snapshots")) {
    return Answer(201, snapshot);
  }
  if (target == "/templates/used") {
    return Answer(400, ErrorBody(400, "sandbox iuser stands on it"));
  }
  if (target.starts_with("/templates/")) {
    return Answer(204, "");
  }
  if (target.starts_with("/v2/templates")) {
    return Answer(200, R"([{"templateID":"tmine","names":["default/mine"],"cpuCount":2,)"
                       R"("buildCount":3},{"templateID":"base","names":["base"],"cpuCount":2}])");
  }
  if (target.starts_with("/sandboxes/metrics?")) {
    return Answer(200, std::string(R"({"sandboxes":{")") + kId +
                           R"(":{"cpuUsedPct":12.34,"cpuCount":2,"memUsed":10485760,)"
                           R"("memTotal":20971520}}})");
  }
  if (target == "/space/v1/pool") {
    return Answer(200,
                  R"({"templates":[{"templateID":"base@2c-1024m","state":"ready","ready":4}]})");
  }
  if (target == "/space/v1/status") {
    return Answer(200, R"({"sandboxes":{"running":1,"paused":3,"limit":9},)"
                       R"("pool":{"ready":4,"making":1,"templates":2}})");
  }
  return std::nullopt;
}

asio::awaitable<void> FakeDaemon::ServeApi(http::Exchange& exchange, std::string body) {
  const http::RequestHead& head = exchange.request();
  const std::string sandbox =
      std::string(R"({"sandboxID":")") + kId + R"(","templateID":"base","state":")" +
      (is_paused_ ? "paused" : "running") + R"(","envdAccessToken":"t","vmmPid":7})";
  int status = 200;
  std::string answer = "{}";
  const auto branch = AnswerBranch(head.method, head.target);
  if (branch) {
    std::tie(status, answer) = *branch;
  } else if (head.headers.Find("X-API-Key") != kKey) {
    status = 401;
    answer = ErrorBody(401, "Invalid API key");
  } else if (head.method == "POST" && head.target == "/v2/sandboxes") {
    const bool is_wrong = body.find("\"cpuCount\":0") != std::string::npos;
    status = is_wrong ? 400 : 201;
    answer = is_wrong ? ErrorBody(400, "cpuCount must be from 1 to 32, not 0") : sandbox;
    const std::lock_guard lock(mutex_);
    live_ += is_wrong ? 0 : 1;
  } else if (head.target.find(kId) == std::string::npos &&
             head.target.find("sandboxes/") != std::string::npos) {
    status = 404;
    answer = ErrorBody(404, "Sandbox \"x\" doesn't exist or you don't have access to it");
  } else if (head.method == "DELETE") {
    status = 204;
    answer = "";
    const std::lock_guard lock(mutex_);
    live_ = 0;
  } else if (head.target.starts_with("/space/v1/sandboxes?")) {
    answer = "[" + (live() > 0 ? sandbox : std::string()) + "]";
  } else {
    answer = sandbox;
  }
  (void)co_await exchange.Respond(Json(status), std::move(answer));
}

asio::awaitable<void> FakeDaemon::ServeProcess(http::Exchange& exchange, std::string body) {
  const std::string& target = exchange.request().target;
  if (target == "/process.Process/Start") {
    const json::value request = json::parse(std::string_view(body).substr(5));
    const json::value& process = request.at("process");
    std::string argument;
    if (!process.at("args").get_array().empty()) {
      argument = process.at("args").at(0).get_string();
    }
    co_return co_await Run(exchange, std::string(process.at("cmd").get_string()),
                           std::move(argument));
  }
  {
    const std::lock_guard lock(mutex_);
    const json::value request = json::parse(body);
    if (target == "/process.Process/SendInput") {
      input_ += DecodeBase64(request.at("input").at("stdin").get_string()).value();
    } else if (target == "/process.Process/CloseStdin") {
      is_input_closed_ = true;
    } else if (target == "/process.Process/SendSignal") {
      signal_ = request.at("signal") == "SIGNAL_SIGKILL" ? 9 : 15;
    }
  }
  (void)co_await exchange.Respond(Json(200), "{}");
}

// Commands: "exit N", "die", "both", "cat" (until its input is closed), "hang" (until a signal),
// "cut", "mute" (never a byte), and everything else is not found.
asio::awaitable<void> FakeDaemon::Run(http::Exchange& exchange, std::string command,
                                      std::string argument) {
  if (command == "mute") {
    co_await exchange.WaitForPeerClose();
    co_return;
  }
  http::ResponseHead head{200, {{"Content-Type", "application/connect+json"}}};
  (void)co_await exchange.Start(std::move(head), std::nullopt);
  const std::string started = MakeEnvelope(R"({"event":{"start":{"pid":5}}})");
  std::string stream = started;
  if (command == "exit") {
    stream += End(std::stoi(argument), "exit status " + argument, true);
  } else if (command == "die") {
    stream += End(-1, "signal: killed", false);
  } else if (command == "both") {
    stream += Output("stdout", "out\n") + Output("stderr", "err\n") + End(0, "exit status 0", true);
  } else if (command == "cat" || command == "hang") {
    (void)co_await exchange.Write(started);
    asio::steady_timer timer(co_await asio::this_coro::executor);
    bool is_done = false;
    while (!is_done) {
      timer.expires_after(std::chrono::milliseconds(2));
      co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
      const std::lock_guard lock(mutex_);
      is_done = command == "cat" ? is_input_closed_ : signal_ != 0;
    }
    const std::lock_guard lock(mutex_);
    stream = command == "cat" ? Output("stdout", input_) + End(0, "exit status 0", true)
                              : End(-1, "signal: terminated", false);
  } else if (command == "cut") {
    (void)co_await exchange.Write(started);
    exchange.Cut();
    co_return;
  } else if (command == "locked") {
    stream = StreamError("permission_denied", "locked: permission denied");
  } else if (command == "lost") {
    stream = StreamError("invalid_argument", "cwd '/no' does not exist");
  } else {
    stream = StreamError("not_found", "command '" + command + "' not found");
  }
  (void)co_await exchange.Write(stream);
  (void)co_await exchange.Finish();
}

asio::awaitable<void> FakeDaemon::ServeFiles(http::Exchange& exchange, std::string body) {
  const auto target = http::ParseTarget(exchange.request().target).value();
  const std::string path(target.Query("path").value_or(""));
  int status = 200;
  std::string answer = "[]";
  if (path.ends_with("/folder")) {
    status = 400;
    answer = ErrorBody(400, "path '" + path + "' is a directory");
  } else if (exchange.request().method == "POST") {
    PutFile(path, std::move(body));
  } else if (const auto all = files(); all.contains(path)) {
    answer = all.at(path);
  } else {
    status = 404;
    answer = ErrorBody(404, "path '" + path + "' does not exist");
  }
  (void)co_await exchange.Respond(Json(status), std::move(answer));
}

}  // namespace space::cli
