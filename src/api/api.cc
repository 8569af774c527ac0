#include "api/api.h"

#include <utility>

#include "api/errors.h"
#include "api/proxy.h"
#include "api/proxy_access.h"
#include "api/proxy_route.h"
#include "base/log.h"
#include "base/random.h"
#include "http/deadline.h"
#include "node/guest_port.h"

namespace space {
namespace {

constexpr std::string_view kUnknownRoute =
    "no such operation; this server speaks E2B's API as the SDKs JS e2b 2.45 to 2.51, Python e2b "
    "2.45 and @e2b/cli 2.17 to 2.19 use it, and /space/v1";
constexpr std::string_view kBadKey =
    "Invalid API key, please visit the documentation of `space key` for how to get one";

// Browsers ask before each call; keys travel in a header, so any origin may ask.
const http::Headers& CorsHeaders() {
  static const http::Headers kHeaders = {{"Access-Control-Allow-Origin", "*"},
                                         {"Access-Control-Allow-Methods", "*"},
                                         {"Access-Control-Allow-Headers", "*"},
                                         {"Access-Control-Expose-Headers", "*"}};
  return kHeaders;
}

asio::awaitable<void> Answer(http::Exchange& exchange, ApiResponse response,
                             std::string request_id) {
  http::ResponseHead head;
  head.status = response.status;
  head.headers = CorsHeaders();
  if (response.status != 204) {
    head.headers.Add("Content-Type", response.content_type);
  }
  head.headers.Add("X-Request-Id", std::move(request_id));
  for (http::Header& header : response.headers) {
    head.headers.Add(std::move(header.name), std::move(header.value));
  }
  // A client that is gone is no error of ours.
  [[maybe_unused]] const auto sent =
      co_await exchange.Respond(std::move(head), std::move(response.body));
}

ApiResponse ErrorResponse(const Error& error, const std::string& request_id) {
  const int status = HttpStatusOf(error.code());
  if (status >= 500) {
    SPACE_LOG_LIMITED(log::Level::kWarn, "request_failed", {"request_id", request_id},
                      {"status", status}, {"error", error.message()});
  }
  return JsonResponse(status, ErrorBody(status, error.message()));
}

// A signed file URL of the plain port names no sandbox: the one whose token made the signature is
// meant (E2B.md 1.6 and 1.7).
bool IsSignedFileUrl(const http::RequestHead& head) {
  const auto target = http::ParseTarget(head.target);
  return target && target->path == "/files" && target->Query("signature") &&
         head.method != "OPTIONS";
}

}  // namespace

ApiResponse JsonResponse(int status, std::string body) {
  ApiResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

ApiResponse NoContent() { return JsonResponse(204, ""); }

Result<int64_t> CountShown(Api& api, const std::string& team_id, ShownState shown) {
  int64_t sum = 0;
  for (const SandboxState state : StatesShownAs(shown)) {
    SPACE_TRY(const int64_t count, api.sandboxes().Count(team_id, state), "count");
    sum += count;
  }
  return sum;
}

Result<json::object> BodyObject(const ApiRequest& request) {
  if (request.body.empty()) {
    return json::object();
  }
  auto value = ParseJson(request.body);
  if (!value) {
    return Fail(ErrorCode::kInvalidArgument, "validation error: body: " + value.error().message());
  }
  if (!value->is_object()) {
    return Fail(ErrorCode::kInvalidArgument, "validation error: body must be a JSON object");
  }
  return std::move(value->get_object());
}

Result<std::string> Api::Authorize(const http::RequestHead& head, Scope needed) {
  const auto secret = head.headers.Find("X-API-KEY");
  SPACE_TRY(const std::optional<ApiKey> key,
            keys().Authenticate(secret.value_or(std::string_view()), Node::Now()), "");
  if (!key) {
    return Fail(ErrorCode::kUnauthenticated, std::string(kBadKey));
  }
  if (!Allows(key->scope, needed)) {
    return Fail(ErrorCode::kPermissionDenied,
                "this key has the scope " + std::string(ScopeName(key->scope)) +
                    ", the operation needs " + std::string(ScopeName(needed)));
  }
  return key->team_id;
}

asio::awaitable<Result<ApiResponse>> Api::Run(http::Exchange& exchange, ApiRequest request) {
  const http::RequestHead& head = exchange.request();
  SPACE_CO_TRY(request.target, http::ParseTarget(head.target), "");
  if (head.method == "OPTIONS") {
    co_return NoContent();
  }
  Match match = FindRoute(Routes(), head.method, request.target.segments);
  if (match.route == nullptr) {
    co_return match.path_exists
        ? JsonResponse(405, ErrorBody(405, "method is not supported here: " + head.method))
        : JsonResponse(404, ErrorBody(404, kUnknownRoute));
  }
  request.parameters = std::move(match.parameters);
  if (!match.route->scope) {  // for anybody: nothing of theirs is kept
    co_return co_await match.route->operation(*this, std::move(request));
  }
  SPACE_CO_TRY(request.team_id, Authorize(head, *match.route->scope), "");
  const int wait_seconds = rate_limit_.Take(request.team_id, std::chrono::steady_clock::now());
  if (wait_seconds != 0) {
    ApiResponse later = JsonResponse(
        429, ErrorBody(429, "limits.team_requests is reached: your team asks too often"));
    later.headers = {{"Retry-After", std::to_string(wait_seconds)}};
    co_return later;
  }
  auto body = co_await http::WithDeadline(exchange.ReadAll(kMaxJsonBytes),
                                          static_cast<int>(node_.config().body_timeout.count()));
  if (!body && body.error().code() == ErrorCode::kTimeout) {
    ApiResponse late = JsonResponse(408, ErrorBody(408, "the body did not arrive in time"));
    late.headers = {{"Connection", "close"}};
    co_return late;
  }
  if (!body && body.error().code() == ErrorCode::kExhausted) {
    co_return JsonResponse(413, ErrorBody(413, "body is larger than 1 MiB"));
  }
  if (!body) {
    co_return Fail(ErrorCode::kInvalidArgument, body.error().message());
  }
  request.body = *std::move(body);
  co_return co_await match.route->operation(*this, std::move(request));
}

asio::awaitable<void> Api::Handle(http::Exchange& exchange) {
  ProxyDecision decision = DecideRoute(exchange.request());
  if (decision.kind == ProxyDecision::Kind::kBad) {
    http::ResponseHead head{400, {{"Content-Type", "text/plain; charset=utf-8"}}};
    [[maybe_unused]] const auto sent =
        co_await exchange.Respond(std::move(head), decision.error + "\n");
    co_return;
  }
  if (decision.kind == ProxyDecision::Kind::kApi && IsSignedFileUrl(exchange.request())) {
    auto signer = node_.FindId([&exchange](const SandboxRecord& record) {
      return IsSignedFor(record, exchange.request());
    });
    if (!signer) {
      co_await Answer(exchange, JsonResponse(401, ErrorBody(401, "invalid signature")),
                      RandomHex(8));
      co_return;
    }
    decision.kind = ProxyDecision::Kind::kSandbox;
    decision.target = {*std::move(signer), kEnvdTcpPort, /*is_by_host=*/false};
  }
  if (decision.kind == ProxyDecision::Kind::kSandbox) {
    co_await ProxyRequest(node_, exchange, decision.target);
    co_return;
  }
  ApiRequest request;
  request.request_id = RandomHex(8);
  const std::string request_id = request.request_id;
  auto result = co_await Run(exchange, std::move(request));
  // Not in the call below: GCC 12 evaluates both arms of a ?: with temporaries beside a co_await.
  ApiResponse response = result ? *std::move(result) : ErrorResponse(result.error(), request_id);
  co_await Answer(exchange, std::move(response), request_id);
  if (std::exchange(is_shutting_down_, false)) {
    on_shutdown_();
  }
}

}  // namespace space
