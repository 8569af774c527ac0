// Client of the daemon's HTTP API, as coroutines on one thread. Each call has a connection of its
// own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include "cli/envd.h"
#include "http/client.h"
#include "machine/settings.h"

namespace space::cli {

struct Endpoint {
  std::string host = "127.0.0.1";
  uint16_t port = 3000;
  std::string key;       // empty: none known
  bool is_ours = false;  // on this host, as configured: nobody else's program is to have the key

  std::string url() const { return "http://" + authority(); }
  std::string authority() const;
};

// The daemon that this configuration means, with the key to use. SPACE_API_URL names another one.
Result<Endpoint> FindEndpoint(const machine::Settings& settings);

class Api {
 public:
  explicit Api(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
  const Endpoint& endpoint() const { return endpoint_; }

  // True when something answers GET /health as the daemon does.
  asio::awaitable<bool> IsUp(int limit_ms);
  // Any answer with a status of success. Errors carry the server's message and the code of its
  // status; kUnavailable when nobody answers.
  asio::awaitable<Result<http::SimpleResponse>> Ask(std::string method, std::string target,
                                                    std::optional<boost::json::value> body,
                                                    int limit_ms = 30'000);
  // The same with the answer parsed; an empty one is null.
  asio::awaitable<Result<boost::json::value>> Call(std::string method, std::string target,
                                                   std::optional<boost::json::value> body,
                                                   int limit_ms = 30'000);

  asio::awaitable<Result<boost::json::object>> CreateSandbox(boost::json::object body);
  // What E2B calls SandboxDetail, with the envd token; not for dead ones.
  asio::awaitable<Result<boost::json::object>> Sandbox(std::string id);
  // Our own view of it: dead ones too, with pid and reason.
  asio::awaitable<Result<boost::json::object>> Inspect(std::string id);
  asio::awaitable<Result<std::vector<boost::json::object>>> List(bool with_dead);
  asio::awaitable<Result<void>> Kill(std::string id);
  // The time to live from now; may shorten it.
  asio::awaitable<Result<void>> SetTimeout(std::string id, int64_t seconds);
  // Only ever extends.
  asio::awaitable<Result<void>> Refresh(std::string id, int64_t seconds);

  // Copies of a running sandbox: "results", a list of {"sandbox": {...}} and
  // {"error": {code, message}}, and "timings".
  asio::awaitable<Result<boost::json::object>> Fork(std::string id, int64_t count, int64_t seconds);
  asio::awaitable<Result<void>> Pause(std::string id, bool with_memory);
  struct Resumed {
    boost::json::object sandbox;
    bool was_running = false;
  };
  // Lets a paused one go on; of one that runs, only the end is moved out.
  asio::awaitable<Result<Resumed>> Resume(std::string id, int64_t seconds, bool with_memory);
  // `name` empty: none. The answer is E2B's SnapshotInfo.
  asio::awaitable<Result<boost::json::object>> CreateSnapshot(std::string id, std::string name);
  // Our own view of a snapshot, with sizes and times.
  asio::awaitable<Result<boost::json::object>> Snapshot(std::string id);
  // Of one sandbox, or of all when `sandbox` is empty.
  asio::awaitable<Result<std::vector<boost::json::object>>> Snapshots(std::string sandbox);
  asio::awaitable<Result<void>> DeleteSnapshot(std::string id);
  asio::awaitable<Result<std::vector<boost::json::object>>> Templates();
  // The newest point of each sandbox that has one, by id.
  asio::awaitable<Result<boost::json::object>> NewestMetrics(std::vector<std::string> ids);
  // Restored VMs in waiting, and templates in the making.
  asio::awaitable<Result<boost::json::object>> Pool();

  // The agent of a sandbox, from CreateSandbox's or Sandbox's answer.
  std::shared_ptr<EnvdTarget> TargetOf(const boost::json::object& sandbox) const;

 private:
  // All pages of a listing; `target` has a query already.
  asio::awaitable<Result<std::vector<boost::json::object>>> AllPages(std::string target);
  Endpoint endpoint_;
};

// A member as text; "" when it is absent or of another type. Numbers become their digits.
std::string JsonText(const boost::json::object& object, std::string_view key);
int64_t JsonNumber(const boost::json::object& object, std::string_view key);

}  // namespace space::cli
