// The HTTP face of spaced: decides between API and sandbox proxy, checks keys, runs operations.
// One io_context thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>

#include "api/rate_limit.h"
#include "api/router.h"
#include "catalog/json.h"
#include "http/server.h"
#include "node/node.h"

namespace space {

constexpr std::string_view kSpaceVersion = "0.1.0";

class Api {
 public:
  // `on_shutdown` ends the program; it is called once the answer is on its way.
  Api(Node& node, std::function<void()> on_shutdown)
      : node_(node),
        on_shutdown_(std::move(on_shutdown)),
        started_at_(Node::Now()),
        rate_limit_(node.config().team_requests) {}

  // The handler for http::Server. The Api outlives the server.
  boost::asio::awaitable<void> Handle(http::Exchange& exchange);

  Node& node() { return node_; }
  KeyStore& keys() { return node_.catalog().keys(); }
  SandboxStore& sandboxes() { return node_.catalog().sandboxes(); }
  const Config& config() const { return node_.config(); }
  Micros started_at() const { return started_at_; }
  void RequestShutdown() { is_shutting_down_ = true; }

 private:
  boost::asio::awaitable<Result<ApiResponse>> Run(http::Exchange& exchange, ApiRequest request);
  // The team of the request's key.
  Result<std::string> Authorize(const http::RequestHead& head, Scope needed);

  Node& node_;
  std::function<void()> on_shutdown_;
  Micros started_at_;
  RateLimit rate_limit_;
  bool is_shutting_down_ = false;
};

// What operations share.

ApiResponse JsonResponse(int status, std::string body);
ApiResponse NoContent();
// How many of the team's sandboxes clients see as running, or as paused.
Result<int64_t> CountShown(Api& api, const std::string& team_id, ShownState shown);
// The body as an object; an absent body is an empty one. kInvalidArgument "validation error: ...".
Result<json::object> BodyObject(const ApiRequest& request);

}  // namespace space
