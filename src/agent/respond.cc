#include "agent/respond.h"

#include <cerrno>

#include "base/log.h"
#include "http/status.h"

namespace space::agent {

http::ResponseHead MakeHead(const http::Exchange& exchange, int status,
                            std::string_view content_type) {
  http::ResponseHead head{.status = status, .headers = {}};
  if (!content_type.empty()) {
    head.headers.Add("Content-Type", std::string(content_type));
  }
  if (exchange.request().headers.Find("Origin")) {
    head.headers.Add("Access-Control-Allow-Origin", "*");
    head.headers.Add("Access-Control-Expose-Headers",
                     "Location, Cache-Control, X-Content-Type-Options, Connect-Content-Encoding, "
                     "Connect-Accept-Encoding, Content-Disposition, Content-Range, Last-Modified");
  }
  return head;
}

asio::awaitable<void> RespondRestError(http::Exchange& exchange, int status,
                                       std::string_view message) {
  std::string body =
      "{\"code\":" + std::to_string(status) + ",\"message\":\"" + log::EscapeJson(message) + "\"}";
  co_await exchange.Respond(MakeHead(exchange, status, "application/json"), std::move(body));
}

asio::awaitable<void> RespondJson(http::Exchange& exchange, std::string body) {
  co_await exchange.Respond(MakeHead(exchange, 200, "application/json"), std::move(body));
}

asio::awaitable<void> RespondEmpty(http::Exchange& exchange, int status) {
  auto head = MakeHead(exchange, status, {});
  head.headers.Add("Cache-Control", "no-store");
  co_await exchange.Respond(std::move(head), {});
}

asio::awaitable<void> RespondPreflight(http::Exchange& exchange) {
  auto head = MakeHead(exchange, 204, {});
  const auto& asked = exchange.request().headers;
  head.headers.Set("Access-Control-Allow-Origin", "*");
  head.headers.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
  head.headers.Set("Access-Control-Allow-Headers",
                   std::string(asked.Find("Access-Control-Request-Headers").value_or("*")));
  head.headers.Set("Access-Control-Max-Age", "7200");
  co_await exchange.Respond(std::move(head), {});
}

int RestStatus(const Error& error) {
  const bool is_full = error.system_errno() == ENOSPC || error.system_errno() == EDQUOT;
  return is_full ? 507 : http::StatusOf(error.code());
}

}  // namespace space::agent
