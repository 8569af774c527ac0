#include "api/proxy_head.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "catalog/json.h"

namespace space {
namespace {

using http::EqualsIgnoringCase;

// RFC 9110, 7.6.1, and what the message writer sets by itself.
constexpr std::array<std::string_view, 10> kHopByHop = {"Connection",
                                                        "Keep-Alive",
                                                        "Proxy-Connection",
                                                        "Proxy-Authenticate",
                                                        "Proxy-Authorization",
                                                        "TE",
                                                        "Trailer",
                                                        "Transfer-Encoding",
                                                        "Upgrade",
                                                        "Expect"};
constexpr std::string_view kTrafficToken = "E2B-Traffic-Access-Token";

std::vector<std::string> ConnectionTokens(const http::Headers& headers) {
  std::vector<std::string> tokens;
  for (const http::Header& header : headers.all()) {
    if (!EqualsIgnoringCase(header.name, "Connection")) {
      continue;
    }
    std::string_view rest = header.value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      std::string_view token = rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      while (!token.empty() && (token.front() == ' ' || token.front() == '\t')) {
        token.remove_prefix(1);
      }
      while (!token.empty() && (token.back() == ' ' || token.back() == '\t')) {
        token.remove_suffix(1);
      }
      tokens.emplace_back(token);
    }
  }
  return tokens;
}

http::Headers EndToEnd(const http::Headers& headers) {
  const std::vector<std::string> named = ConnectionTokens(headers);
  http::Headers kept;
  for (const http::Header& header : headers.all()) {
    const auto is_same = [&](std::string_view name) {
      return EqualsIgnoringCase(header.name, name);
    };
    if (std::any_of(kHopByHop.begin(), kHopByHop.end(), is_same) ||
        std::any_of(named.begin(), named.end(), is_same)) {
      continue;
    }
    kept.Add(header.name, header.value);
  }
  return kept;
}

void ReplaceAll(std::string& text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos;
       at = text.find(what, at + with.size())) {
    text.replace(at, what.size(), with);
  }
}

bool Contains(const http::Headers& headers, std::string_view name, std::string_view part) {
  return headers.Find(name).value_or("").find(part) != std::string_view::npos;
}

bool LooksLikeBrowser(const http::Headers& headers) {
  if (!Contains(headers, "User-Agent", "Mozilla/")) {
    return false;
  }
  const bool wants_json =
      Contains(headers, "Accept", "json") && !Contains(headers, "Accept", "html");
  const std::string_view mode = headers.Find("Sec-Fetch-Mode").value_or("");
  const bool is_script = mode == "cors" || mode == "no-cors" || mode == "same-origin" ||
                         mode == "websocket" || headers.Find("X-Requested-With").has_value();
  return !wants_json && !is_script;
}

struct ProblemText {
  int status;
  std::string_view message;
  std::string_view title;
};

ProblemText TextOf(ProxyProblem problem) {
  switch (problem) {
    case ProxyProblem::kNotFound:
      return {502, "The sandbox was not found", "Sandbox Not Found"};
    case ProxyProblem::kPortClosed:
      return {502, "The sandbox is running but port is not open", "no service running on port"};
    case ProxyProblem::kTokenMissing:
      return {403,
              "Sandbox is secured with traffic access token. Token header "
              "'e2b-traffic-access-token' is missing",
              "Missing Traffic Access Token"};
    case ProxyProblem::kTokenInvalid:
      return {403,
              "Sandbox is secured with traffic access token. Provided token in header "
              "'e2b-traffic-access-token' is invalid",
              "Invalid Traffic Access Token"};
    case ProxyProblem::kWakeDenied:
      return {403, "The sandbox is paused and resumes only for callers with its access token",
              "Resume Not Allowed"};
    case ProxyProblem::kInternalPath:
      return {404, "not found", "Not Found"};
  }
  return {502, "The sandbox was not found", "Sandbox Not Found"};
}

// `target` is checked text: digits and lower-case letters.
std::string Page(const ProblemText& text, const ProxyTarget& target) {
  const std::string port = std::to_string(target.port);
  return "<html><head><title>" + std::string(text.title) + "</title></head><body><h1>" +
         std::string(text.title) + "</h1><p>Sandbox " + target.sandbox_id + ", port " + port +
         ": " + std::string(text.message) + ".</p></body></html>\n";
}

}  // namespace

bool IsUpgrade(const http::RequestHead& head) {
  const std::vector<std::string> tokens = ConnectionTokens(head.headers);
  return head.headers.Find("Upgrade").has_value() &&
         std::any_of(tokens.begin(), tokens.end(),
                     [](const std::string& token) { return EqualsIgnoringCase(token, "upgrade"); });
}

http::RequestHead HeadForGuest(const http::RequestHead& head, const std::string& mask_host,
                               uint16_t port) {
  http::RequestHead out;
  out.method = head.method;
  out.target = head.target;
  out.headers = EndToEnd(head.headers);
  out.headers.Remove(kTrafficToken);  // between client and proxy; the guest need not know it
  if (IsUpgrade(head)) {
    out.headers.Set("Connection", "Upgrade");
    out.headers.Set("Upgrade", std::string(*head.headers.Find("Upgrade")));
  }
  if (!mask_host.empty()) {
    std::string host = mask_host;
    ReplaceAll(host, "${PORT}", std::to_string(port));
    out.headers.Set("X-Forwarded-Host", std::string(head.headers.Find("Host").value_or("")));
    out.headers.Set("Host", std::move(host));
  }
  return out;
}

http::ResponseHead HeadForClient(const http::ResponseHead& head, bool is_own_origin) {
  http::ResponseHead out;
  out.status = head.status;
  out.headers = EndToEnd(head.headers);
  if (head.status == 101) {
    out.headers.Set("Connection", "Upgrade");
    if (const auto protocol = head.headers.Find("Upgrade")) {
      out.headers.Set("Upgrade", std::string(*protocol));
    }
    return out;
  }
  if (is_own_origin) {
    return out;
  }
  out.headers.Set("Content-Security-Policy", "sandbox");
  out.headers.Set("X-Content-Type-Options", "nosniff");
  std::string disposition(head.headers.Find("Content-Disposition").value_or("attachment"));
  const size_t semicolon = disposition.find(';');
  const std::string parameters =
      semicolon == std::string::npos ? std::string() : disposition.substr(semicolon);
  out.headers.Set("Content-Disposition", "attachment" + parameters);
  return out;
}

std::optional<uint64_t> BodyLengthOf(const http::Headers& headers) {
  if (headers.Find("Transfer-Encoding")) {
    return std::nullopt;
  }
  const std::string_view text = headers.Find("Content-Length").value_or("0");
  uint64_t length = 0;  // the head has been checked, so it is a number
  std::from_chars(text.data(), text.data() + text.size(), length);
  return length;
}

ProxyAnswer AnswerProblem(ProxyProblem problem, const ProxyTarget& target,
                          const http::RequestHead& request) {
  const ProblemText text = TextOf(problem);
  ProxyAnswer answer;
  answer.head.status = text.status;
  answer.head.headers.Set("Access-Control-Allow-Origin", "*");
  if (problem != ProxyProblem::kInternalPath && LooksLikeBrowser(request.headers)) {
    answer.head.headers.Set("Content-Type", "text/html; charset=utf-8");
    answer.body = Page(text, target);
    return answer;
  }
  answer.head.headers.Set("Content-Type", "application/json; charset=utf-8");
  json::object body;
  if (problem == ProxyProblem::kInternalPath) {
    body["message"] = text.message;
    body["path"] = request.target;
  } else {
    body["sandboxId"] = target.sandbox_id;
    body["message"] = text.message;
    if (problem == ProxyProblem::kPortClosed) {
      body["port"] = target.port;
    }
  }
  body["code"] = text.status;
  answer.body = json::serialize(body);
  return answer;
}

}  // namespace space
