#include "cli/api.h"

#include <cstdlib>

#include <boost/json.hpp>

#include "cli/credentials.h"
#include "cli/listener_owner.h"

namespace space::cli {
namespace {

namespace json = boost::json;

constexpr size_t kMaxAnswer = 64 << 20;
constexpr size_t kMaxListed = 100'000;
constexpr size_t kMaxMetricIds = 100;  // that one call takes
constexpr int kConnectLimitMs = 10'000;
// A size that was never used before is built first; on an emulated host that takes minutes.
constexpr int kCreateLimitMs = 600'000;

// A sandbox behind the daemon's proxy.
class SandboxTarget final : public EnvdTarget {
 public:
  SandboxTarget(Endpoint endpoint, std::string id, std::string token)
      : endpoint_(std::move(endpoint)), id_(std::move(id)), token_(std::move(token)) {}

  asio::awaitable<Result<EnvdConnection>> Connect() override {
    SPACE_CO_TRY(http::Stream stream,
                 co_await http::ConnectTcp(endpoint_.host, endpoint_.port, kConnectLimitMs),
                 name());
    co_return EnvdConnection{http::ClientConnection(std::move(stream)), UniqueFd()};
  }

  http::Headers headers() const override {
    http::Headers headers = {
        {"Host", endpoint_.authority()}, {"E2b-Sandbox-Id", id_}, {"E2b-Sandbox-Port", "49983"}};
    if (!token_.empty()) {
      headers.Add("X-Access-Token", token_);
    }
    return headers;
  }

  std::string name() const override { return "sandbox " + id_; }

 private:
  Endpoint endpoint_;
  std::string id_;
  std::string token_;
};

Result<json::value> ParseAnswer(const std::string& body) {
  boost::system::error_code wrong;
  json::value value = body.empty() ? json::value() : json::parse(body, wrong);
  if (wrong) {
    return Fail(ErrorCode::kInternal, "daemon's answer is not JSON");
  }
  return value;
}

}  // namespace

std::string JsonText(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) {
    return "";
  }
  return value->is_string() ? std::string(value->get_string()) : json::serialize(*value);
}

int64_t JsonNumber(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr) {
    return 0;
  }
  boost::system::error_code wrong;
  const auto number = value->to_number<int64_t>(wrong);
  return wrong ? 0 : number;
}

std::string Endpoint::authority() const {
  const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return shown + ":" + std::to_string(port);
}

Result<Endpoint> FindEndpoint(const machine::Settings& settings) {
  Endpoint endpoint;
  const bool is_any = settings.listen_host == "0.0.0.0" || settings.listen_host == "::";
  endpoint.host = is_any ? "127.0.0.1" : settings.listen_host;
  endpoint.port = settings.listen_port;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
  endpoint.is_ours =
      endpoint.host == "localhost" || endpoint.host == "::1" || endpoint.host.starts_with("127.");
  if (const char* url = std::getenv("SPACE_API_URL"); url != nullptr && *url != '\0') {
    std::string_view rest = url;
    if (!rest.starts_with("http://")) {
      return Fail(ErrorCode::kInvalidArgument, "SPACE_API_URL must be http://HOST:PORT, not", rest);
    }
    rest.remove_prefix(7);
    while (rest.ends_with('/')) {
      rest.remove_suffix(1);
    }
    SPACE_TRY(machine::HostPort address, machine::ParseHostPort(rest), "SPACE_API_URL");
    endpoint.host = std::move(address.host);
    endpoint.port = address.port;
    endpoint.is_ours = false;
  }
  endpoint.key = FindKey(endpoint.url()).value_or("");
  return endpoint;
}

asio::awaitable<bool> Api::IsUp(int limit_ms) {
  auto stream = co_await http::ConnectTcp(endpoint_.host, endpoint_.port, limit_ms);
  if (!stream) {
    co_return false;
  }
  http::ClientConnection connection(*std::move(stream));
  http::RequestHead head{"GET", "/health", {{"Host", endpoint_.authority()}}};
  const auto answer =
      co_await http::Call(connection, std::move(head), std::string(), kMaxAnswer, limit_ms);
  co_return answer.has_value() && answer->head.status == 200;
}

asio::awaitable<Result<http::SimpleResponse>> Api::Ask(std::string method, std::string target,
                                                       std::optional<json::value> body,
                                                       int limit_ms) {
  if (endpoint_.key.empty()) {
    co_return Fail(ErrorCode::kUnauthenticated,
                   "no API key is known for " + endpoint_.url() +
                       "; `space up` stores one, or set SPACE_API_KEY");
  }
  if (endpoint_.is_ours) {
    SPACE_CO_TRY_VOID(CheckListener(endpoint_.port), "");
  }
  auto stream = co_await http::ConnectTcp(endpoint_.host, endpoint_.port, kConnectLimitMs);
  if (!stream) {
    co_return Fail(ErrorCode::kUnavailable,
                   "no daemon answers at " + endpoint_.url() + "; start it with `space up`");
  }
  http::ClientConnection connection(*std::move(stream));
  http::RequestHead head{std::move(method), std::move(target), {{"Host", endpoint_.authority()}}};
  head.headers.Set("User-Agent", "space-cli");
  head.headers.Set("X-API-Key", endpoint_.key);
  std::string text;
  if (body) {
    head.headers.Set("Content-Type", "application/json");
    text = json::serialize(*body);
  }
  auto answer =
      co_await http::Call(connection, std::move(head), std::move(text), kMaxAnswer, limit_ms);
  if (!answer) {
    co_return Fail(std::move(answer).error().While("daemon at " + endpoint_.url()));
  }
  if (answer->head.status < 200 || answer->head.status > 299) {
    co_return Fail(CodeOfStatus(answer->head.status),
                   MessageOfBody(answer->head.status, answer->body));
  }
  co_return answer;
}

asio::awaitable<Result<json::value>> Api::Call(std::string method, std::string target,
                                               std::optional<json::value> body, int limit_ms) {
  auto answer = co_await Ask(std::move(method), std::move(target), std::move(body), limit_ms);
  if (!answer) {
    co_return Fail(std::move(answer).error());
  }
  co_return ParseAnswer(answer->body);
}

namespace {

Result<json::object> AsObject(Result<json::value> value) {
  if (!value) {
    return Fail(std::move(value).error());
  }
  if (!value->is_object()) {
    return Fail(ErrorCode::kInternal, "daemon's answer is not a JSON object");
  }
  return std::move(value->get_object());
}

Result<std::vector<json::object>> AsList(Result<json::value> value) {
  if (!value) {
    return Fail(std::move(value).error());
  }
  if (!value->is_array()) {
    return Fail(ErrorCode::kInternal, "daemon's answer is not a JSON list");
  }
  std::vector<json::object> list;
  for (json::value& entry : value->get_array()) {
    if (entry.is_object()) {
      list.push_back(std::move(entry.get_object()));
    }
  }
  return list;
}

}  // namespace

asio::awaitable<Result<json::object>> Api::CreateSandbox(json::object body) {
  std::optional<json::value> sent = std::move(body);
  auto answer = co_await Call("POST", "/v2/sandboxes", std::move(sent), kCreateLimitMs);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<json::object>> Api::Sandbox(std::string id) {
  auto answer = co_await Call("GET", "/sandboxes/" + http::PercentEncode(id), std::nullopt);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<json::object>> Api::Inspect(std::string id) {
  auto answer =
      co_await Call("GET", "/space/v1/sandboxes/" + http::PercentEncode(id), std::nullopt);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<std::vector<json::object>>> Api::AllPages(std::string target) {
  std::vector<json::object> all;
  std::string page;
  do {
    std::string one = target + (page.empty() ? "" : "&nextToken=" + http::PercentEncode(page));
    auto answer = co_await Ask("GET", std::move(one), std::nullopt);
    if (!answer) {
      co_return Fail(std::move(answer).error());
    }
    auto list = AsList(ParseAnswer(answer->body));
    if (!list) {
      co_return Fail(std::move(list).error());
    }
    std::move(list->begin(), list->end(), std::back_inserter(all));
    page = std::string(answer->head.headers.Find("X-Next-Token").value_or(""));
  } while (!page.empty() && all.size() < kMaxListed);
  co_return all;
}

asio::awaitable<Result<std::vector<json::object>>> Api::List(bool with_dead) {
  std::string target = "/space/v1/sandboxes?limit=100";
  target += with_dead ? "&all=true" : "";
  co_return co_await AllPages(std::move(target));
}

asio::awaitable<Result<void>> Api::Kill(std::string id) {
  auto answer = co_await Call("DELETE", "/sandboxes/" + http::PercentEncode(id), std::nullopt);
  co_return answer ? Result<void>() : Fail(std::move(answer).error());
}

asio::awaitable<Result<void>> Api::SetTimeout(std::string id, int64_t seconds) {
  std::optional<json::value> body = json::object{{"timeout", seconds}};
  auto answer =
      co_await Call("POST", "/sandboxes/" + http::PercentEncode(id) + "/timeout", std::move(body));
  co_return answer ? Result<void>() : Fail(std::move(answer).error());
}

asio::awaitable<Result<void>> Api::Refresh(std::string id, int64_t seconds) {
  std::optional<json::value> body = json::object{{"duration", seconds}};
  auto answer = co_await Call("POST", "/sandboxes/" + http::PercentEncode(id) + "/refreshes",
                              std::move(body));
  co_return answer ? Result<void>() : Fail(std::move(answer).error());
}

asio::awaitable<Result<json::object>> Api::Fork(std::string id, int64_t count, int64_t seconds) {
  std::optional<json::value> body = json::object{{"count", count}, {"timeout", seconds}};
  auto answer = co_await Call("POST", "/space/v1/sandboxes/" + http::PercentEncode(id) + "/fork",
                              std::move(body), kCreateLimitMs);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<void>> Api::Pause(std::string id, bool with_memory) {
  std::optional<json::value> body = json::object{{"memory", with_memory}};
  auto answer = co_await Call("POST", "/sandboxes/" + http::PercentEncode(id) + "/pause",
                              std::move(body), kCreateLimitMs);
  co_return answer ? Result<void>() : Fail(std::move(answer).error());
}

asio::awaitable<Result<Api::Resumed>> Api::Resume(std::string id, int64_t seconds,
                                                  bool with_memory) {
  json::object fields = {{"timeout", seconds}};
  if (!with_memory) {
    fields["memory"] = false;
  }
  std::optional<json::value> body = std::move(fields);
  auto answer = co_await Ask("POST", "/v2/sandboxes/" + http::PercentEncode(id) + "/connect",
                             std::move(body), kCreateLimitMs);
  if (!answer) {
    co_return Fail(std::move(answer).error());
  }
  auto sandbox = AsObject(ParseAnswer(answer->body));
  if (!sandbox) {
    co_return Fail(std::move(sandbox).error());
  }
  co_return Resumed{*std::move(sandbox), answer->head.status == 200};
}

asio::awaitable<Result<json::object>> Api::CreateSnapshot(std::string id, std::string name) {
  json::object fields;
  if (!name.empty()) {
    fields["name"] = std::move(name);
  }
  std::optional<json::value> body = std::move(fields);
  auto answer = co_await Call("POST", "/sandboxes/" + http::PercentEncode(id) + "/snapshots",
                              std::move(body), kCreateLimitMs);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<json::object>> Api::Snapshot(std::string id) {
  auto answer =
      co_await Call("GET", "/space/v1/snapshots/" + http::PercentEncode(id), std::nullopt);
  co_return AsObject(std::move(answer));
}

asio::awaitable<Result<std::vector<json::object>>> Api::Snapshots(std::string sandbox) {
  std::string target = "/space/v1/snapshots?limit=100";
  target += sandbox.empty() ? "" : "&sandboxID=" + http::PercentEncode(sandbox);
  co_return co_await AllPages(std::move(target));
}

asio::awaitable<Result<void>> Api::DeleteSnapshot(std::string id) {
  auto answer = co_await Call("DELETE", "/templates/" + http::PercentEncode(id), std::nullopt);
  co_return answer ? Result<void>() : Fail(std::move(answer).error());
}

asio::awaitable<Result<std::vector<json::object>>> Api::Templates() {
  std::string target = "/v2/templates?limit=100";
  co_return co_await AllPages(std::move(target));
}

asio::awaitable<Result<json::object>> Api::NewestMetrics(std::vector<std::string> ids) {
  json::object all;
  for (size_t first = 0; first < ids.size(); first += kMaxMetricIds) {
    std::string target = "/sandboxes/metrics?sandbox_ids=";
    for (size_t at = first; at < std::min(ids.size(), first + kMaxMetricIds); ++at) {
      target += (at == first ? "" : ",") + http::PercentEncode(ids[at]);
    }
    auto answer = AsObject(co_await Call("GET", std::move(target), std::nullopt));
    if (!answer) {
      co_return Fail(std::move(answer).error());
    }
    const json::value* points = answer->if_contains("sandboxes");
    if (points == nullptr || !points->is_object()) {
      co_return Fail(ErrorCode::kInternal, "the server's answer has no sandboxes");
    }
    for (const auto& [id, point] : points->get_object()) {
      all[id] = point;
    }
  }
  co_return all;
}

asio::awaitable<Result<json::object>> Api::Pool() {
  auto answer = co_await Call("GET", "/space/v1/pool", std::nullopt);
  co_return AsObject(std::move(answer));
}

std::shared_ptr<EnvdTarget> Api::TargetOf(const json::object& sandbox) const {
  return std::make_shared<SandboxTarget>(endpoint_, JsonText(sandbox, "sandboxID"),
                                         JsonText(sandbox, "envdAccessToken"));
}

}  // namespace space::cli
