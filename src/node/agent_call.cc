#include "node/agent_call.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include <openssl/evp.h>

#include "base/random.h"
#include "catalog/json.h"
#include "http/client.h"
#include "node/node.h"
#include "node/time_text.h"
#include "wire/ports.h"

namespace space {
namespace {

// The agent itself gives up a freeze after 65 s.
constexpr int kCallLimitMs = 90'000;
// With the hooks of whoever made the snapshot; a create waits for it.
constexpr int kInitLimitMs = 60'000;
constexpr int kMetricsLimitMs = 2'000;
// The VMM gives a guest 2 s to take a connection; on a busy host one that has just been restored
// needs longer.
constexpr std::chrono::seconds kConnectLimit{30};
constexpr size_t kAnswerBytes = 64 * 1024;
constexpr size_t kEntropyBytes = 64;
constexpr double kMostBytes = 1LL << 50;
constexpr double kMostCpus = 1024;
constexpr std::string_view kDefaultUser = "user";
constexpr std::string_view kDefaultWorkdir = "/home/user";

std::string Base64(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

std::string InitBody(const SandboxRecord& record, InitKind kind) {
  json::object variables;
  variables["E2B_SANDBOX"] = "true";
  variables["E2B_SANDBOX_ID"] = record.id;
  variables["E2B_TEMPLATE_ID"] = record.template_id;
  for (const auto& [name, value] : record.environment) {
    variables[name] = value;
  }
  json::object body;
  body["envVars"] = std::move(variables);
  if (!record.envd_token.empty()) {
    body["accessToken"] = record.envd_token;
  }
  body["defaultUser"] = kDefaultUser;
  body["defaultWorkdir"] = kDefaultWorkdir;
  if (kind != InitKind::kBooted) {
    std::array<std::byte, kEntropyBytes> entropy{};
    FillRandom(entropy);
    json::object restore = {{"entropy", Base64(entropy)}, {"hooks", kind != InitKind::kPooled}};
    if (kind == InitKind::kRestored) {
      restore["machineId"] = RandomHex(16);
    }
    body["restore"] = std::move(restore);
  }
  body["timestamp"] = FormatTime(Node::Now());
  return json::serialize(body);
}

struct AgentCall {
  std::string method;
  std::string target;
  std::function<std::string()> make_body;  // runs when the connection stands
  http::Headers more_headers;
  bool keeps_line = false;  // for the next call
  int limit_ms = kCallLimitMs;
};

asio::awaitable<Result<http::ClientConnection>> ReachAgent(std::shared_ptr<VmmClient> vmm,
                                                           int limit_ms) {
  const auto give_up_at =
      std::chrono::steady_clock::now() +
      std::min<std::chrono::milliseconds>(kConnectLimit, std::chrono::milliseconds(limit_ms));
  auto stream = co_await vmm->ConnectGuest(wire::kControlPort, limit_ms);
  while (!stream && stream.error().code() == ErrorCode::kTimeout &&
         std::chrono::steady_clock::now() < give_up_at) {
    stream = co_await vmm->ConnectGuest(wire::kControlPort, limit_ms);
  }
  if (!stream) {
    co_return Fail(std::move(stream).error().While("reach agent"));
  }
  co_return http::ClientConnection(*std::move(stream));
}

asio::awaitable<Result<http::SimpleResponse>> CallOn(http::ClientConnection& line,
                                                     const AgentCall& call) {
  http::RequestHead head;
  head.method = call.method;
  head.target = call.target;
  head.headers = call.more_headers;
  head.headers.Set("Host", "envd");
  if (!head.headers.Find("Content-Type")) {
    head.headers.Set("Content-Type", "application/json");
  }
  auto body = call.make_body();
  co_return co_await http::Call(line, std::move(head), std::move(body), kAnswerBytes,
                                call.limit_ms);
}

// The body of the answer. All of these calls may be made twice.
asio::awaitable<Result<std::string>> AskAgent(std::shared_ptr<VmmClient> vmm, AgentCall call) {
  Result<http::SimpleResponse> response = Fail(ErrorCode::kUnavailable, "no connection is kept");
  std::optional<http::ClientConnection> line = vmm->TakeAgentLine();
  if (line) {
    response = co_await CallOn(*line, call);
  }
  if (!response && response.error().code() == ErrorCode::kUnavailable) {
    SPACE_CO_TRY(line, co_await ReachAgent(vmm, call.limit_ms), "call " + call.target);
    response = co_await CallOn(*line, call);
  }
  if (!response) {
    co_return Fail(std::move(response).error().While("call " + call.target));
  }
  if (response->head.status / 100 != 2) {
    co_return Fail(ErrorCode::kInternal, "the agent refused " + call.target + ": " +
                                             std::to_string(response->head.status) + " " +
                                             Printable(response->body.substr(0, 300)));
  }
  if (call.keeps_line && line->reusable()) {
    vmm->KeepAgentLine(*std::move(line));
  }
  co_return std::move(response->body);
}

asio::awaitable<Result<void>> CallAgent(std::shared_ptr<VmmClient> vmm, AgentCall call) {
  SPACE_CO_TRY([[maybe_unused]] const std::string body,
               co_await AskAgent(std::move(vmm), std::move(call)), "");
  co_return Result<void>();
}

// A field of the guest's answer, from 0 to `most`; 0 when it is no number.
double NumberOf(const json::object& answer, std::string_view name, double most) {
  const json::value* value = answer.if_contains(name);
  const double number = value != nullptr && value->is_number() ? value->to_number<double>() : 0;
  return number > 0 ? std::min(number, most) : 0;
}

std::string StartBody(const std::vector<std::string>& command) {
  json::array arguments;
  for (size_t at = 1; at < command.size(); ++at) {
    arguments.emplace_back(command[at]);
  }
  const std::string text = json::serialize(json::object{
      {"process", {{"cmd", command.at(0)}, {"args", std::move(arguments)}}}, {"stdin", false}});
  std::string frame(5, '\0');  // Connect: no flags, the length, most significant byte first
  for (size_t at = 0; at < 4; ++at) {
    frame[1 + at] = static_cast<char>(text.size() >> (24 - 8 * at));
  }
  return frame + text;
}

}  // namespace

std::string Printable(std::string text) {
  std::erase_if(text, [](char letter) { return letter < ' ' || letter > '~'; });
  return text;
}

std::vector<std::string> WarmingCommand() { return {"/bin/bash", "-l", "-c", ":"}; }

asio::awaitable<Result<void>> CheckHealth(std::shared_ptr<VmmClient> vmm) {
  return CallAgent(std::move(vmm), {"GET", "/health", [] { return std::string(); }, {}});
}

asio::awaitable<Result<MetricPoint>> FetchMetrics(std::shared_ptr<VmmClient> vmm,
                                                  std::string token) {
  AgentCall call;  // named: GCC 12 destroys temporaries of a co_await twice
  call.method = "GET";
  call.target = "/metrics";
  call.make_body = [] { return std::string(); };
  if (!token.empty()) {
    call.more_headers.Set("X-Access-Token", std::move(token));
  }
  call.keeps_line = true;
  call.limit_ms = kMetricsLimitMs;
  SPACE_CO_TRY(const std::string body, co_await AskAgent(std::move(vmm), std::move(call)), "");
  SPACE_CO_TRY(const json::value value, ParseJson(body), "read metrics");
  if (!value.is_object()) {
    co_return Fail(ErrorCode::kInvalidArgument, "metrics are no JSON object");
  }
  const json::object& answer = value.get_object();
  const auto bytes = [&answer](std::string_view name) {
    return static_cast<int64_t>(NumberOf(answer, name, kMostBytes));
  };
  MetricPoint point;
  point.cpu_count = static_cast<uint32_t>(NumberOf(answer, "cpu_count", kMostCpus));
  point.cpu_used_percent = NumberOf(answer, "cpu_used_pct", 100);
  point.mem_used = bytes("mem_used");
  point.mem_total = bytes("mem_total");
  point.mem_cache = bytes("mem_cache");
  point.disk_used = bytes("disk_used");
  point.disk_total = bytes("disk_total");
  co_return point;
}

asio::awaitable<Result<void>> PostInit(std::shared_ptr<VmmClient> vmm, SandboxRecord record,
                                       InitKind kind) {
  return CallAgent(std::move(vmm),
                   {"POST",
                    "/init",
                    [record = std::move(record), kind] { return InitBody(record, kind); },
                    {},
                    false,
                    kInitLimitMs});
}

asio::awaitable<Result<void>> PostFreeze(std::shared_ptr<VmmClient> vmm, FreezeKind kind) {
  const bool is_for_pool = kind == FreezeKind::kOnlyProcesses;
  return CallAgent(std::move(vmm), {"POST",
                                    "/freeze",
                                    [kind, is_for_pool] {
                                      return json::serialize(
                                          json::object{{"template", kind == FreezeKind::kTemplate},
                                                       {"onlyProcesses", is_for_pool}});
                                    },
                                    {},
                                    is_for_pool});
}

asio::awaitable<Result<void>> PostUnfreeze(std::shared_ptr<VmmClient> vmm) {
  return CallAgent(std::move(vmm), {"POST", "/unfreeze", [] { return std::string("{}"); }, {}});
}

asio::awaitable<Result<void>> RunInGuest(std::shared_ptr<VmmClient> vmm,
                                         std::vector<std::string> command) {
  return CallAgent(std::move(vmm), {"POST",
                                    "/process.Process/Start",
                                    [body = StartBody(command)] { return body; },
                                    {{"Content-Type", "application/connect+json"},
                                     {"Connect-Protocol-Version", "1"},
                                     {"Authorization", "Basic cm9vdDo="}}});  // root, no password
}

}  // namespace space
