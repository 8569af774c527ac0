// The table of operations and the way from a request to one of them. Any thread; no I/O.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "catalog/records.h"
#include "http/message.h"

namespace space {

class Api;

// One call of an operation.
struct ApiRequest {
  http::Target target;
  std::vector<std::string> parameters;  // what the pattern's {} matched, in order
  std::string body;
  std::string team_id;  // empty where no key is needed
  std::string request_id;
};

struct ApiResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<http::Header> headers;
};

using Operation = boost::asio::awaitable<Result<ApiResponse>> (*)(Api& api, ApiRequest request);

struct Route {
  std::string_view method;
  std::string_view pattern;    // "/sandboxes/{sandboxID}/timeout"
  std::optional<Scope> scope;  // nullopt: no key
  Operation operation;
};

// All routes, in the order of the documentation.
std::span<const Route> Routes();

struct Match {
  const Route* route = nullptr;  // null: none
  std::vector<std::string> parameters;
  bool path_exists = false;  // with another method
};
// Literal segments win over parameters.
Match FindRoute(std::span<const Route> routes, std::string_view method,
                const std::vector<std::string>& segments);

// `<id>` or `<id>-<clientID>`: the id. kInvalidArgument "Invalid sandbox ID" for anything else.
Result<std::string> SandboxIdOf(std::string_view parameter);

}  // namespace space
