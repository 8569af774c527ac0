#include "node/agent_call.h"

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
// The VMM gives a guest 2 s to take a connection; on a busy host one that has just been restored
// needs longer.
constexpr std::chrono::seconds kConnectLimit{30};
constexpr size_t kAnswerBytes = 64 * 1024;
constexpr size_t kEntropyBytes = 64;
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
    json::object restore = {{"entropy", Base64(entropy)}, {"hooks", true}};
    if (kind == InitKind::kRestored) {
      restore["machineId"] = RandomHex(16);
    }
    body["restore"] = std::move(restore);
  }
  body["timestamp"] = FormatTime(Node::Now());
  return json::serialize(body);
}

// `make_body` runs when the connection stands.
asio::awaitable<Result<void>> CallAgent(std::shared_ptr<VmmClient> vmm, std::string method,
                                        std::string target,
                                        std::function<std::string()> make_body) {
  const auto give_up_at = std::chrono::steady_clock::now() + kConnectLimit;
  auto stream = co_await vmm->ConnectGuest(wire::kEnvdPort, kCallLimitMs);
  while (!stream && stream.error().code() == ErrorCode::kTimeout &&
         std::chrono::steady_clock::now() < give_up_at) {
    stream = co_await vmm->ConnectGuest(wire::kEnvdPort, kCallLimitMs);
  }
  if (!stream) {
    co_return Fail(std::move(stream).error().While("reach agent"));
  }
  http::ClientConnection connection(*std::move(stream));
  http::RequestHead head;
  head.method = std::move(method);
  head.target = target;
  head.headers = {{"Host", "envd"}, {"Content-Type", "application/json"}};
  SPACE_CO_TRY(
      const http::SimpleResponse response,
      co_await http::Call(connection, std::move(head), make_body(), kAnswerBytes, kCallLimitMs),
      "call " + target);
  if (response.head.status / 100 != 2) {
    co_return Fail(ErrorCode::kInternal, "the agent refused " + target + ": " +
                                             std::to_string(response.head.status) + " " +
                                             Printable(response.body.substr(0, 300)));
  }
  co_return Result<void>();
}

}  // namespace

std::string Printable(std::string text) {
  std::erase_if(text, [](char letter) { return letter < ' ' || letter > '~'; });
  return text;
}

asio::awaitable<Result<void>> CheckHealth(std::shared_ptr<VmmClient> vmm) {
  return CallAgent(std::move(vmm), "GET", "/health", [] { return std::string(); });
}

asio::awaitable<Result<void>> PostInit(std::shared_ptr<VmmClient> vmm, SandboxRecord record,
                                       InitKind kind) {
  return CallAgent(std::move(vmm), "POST", "/init",
                   [record = std::move(record), kind] { return InitBody(record, kind); });
}

asio::awaitable<Result<void>> PostFreeze(std::shared_ptr<VmmClient> vmm, bool is_template) {
  return CallAgent(std::move(vmm), "POST", "/freeze", [is_template] {
    return std::string(is_template ? R"({"template":true})" : R"({"template":false})");
  });
}

asio::awaitable<Result<void>> PostUnfreeze(std::shared_ptr<VmmClient> vmm) {
  return CallAgent(std::move(vmm), "POST", "/unfreeze", [] { return std::string("{}"); });
}

}  // namespace space
