#include "api/proxy_route.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "api/router.h"
#include "wire/ports.h"

namespace space {
namespace {

std::optional<uint16_t> ParsePort(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    return std::nullopt;
  }
  return port;
}

ProxyDecision BadAddress(std::string error) {
  ProxyDecision decision;
  decision.kind = ProxyDecision::Kind::kBad;
  decision.error = std::move(error);
  return decision;
}

ProxyDecision ToSandbox(std::string_view port_text, std::string_view id_text, bool is_by_host) {
  const auto port = ParsePort(port_text);
  const auto id = SandboxIdOf(id_text);
  if (!port) {
    return BadAddress("invalid sandbox port");
  }
  if (!id) {
    return BadAddress("invalid sandbox id");
  }
  ProxyDecision decision;
  decision.kind = ProxyDecision::Kind::kSandbox;
  decision.target = {*id, *port, is_by_host};
  return decision;
}

}  // namespace

ProxyDecision DecideRoute(const http::RequestHead& head) {
  const std::string_view host = head.headers.Find("Host").value_or("");
  const size_t dot = host.find('.');
  const size_t dash = host.find('-');
  if (dot != std::string_view::npos && dash < dot && dash > 0 &&
      host.substr(0, dash).find_first_not_of("0123456789") == std::string_view::npos) {
    // Host names are matched without regard to case; ids are lower case.
    std::string label(host.substr(dash + 1, dot - dash - 1));
    std::transform(label.begin(), label.end(), label.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    return ToSandbox(host.substr(0, dash), label, true);
  }
  const auto id = head.headers.Find("E2b-Sandbox-Id");
  const auto port = head.headers.Find("E2b-Sandbox-Port");
  if (id && port) {
    return ToSandbox(*port, *id, false);
  }
  if (id) {
    return BadAddress("header E2b-Sandbox-Port is missing");
  }
  if (port) {
    return BadAddress("header E2b-Sandbox-Id is missing");
  }
  return {};
}

bool IsInternalPath(std::string_view raw_target) {
  const auto target = http::ParseTarget(raw_target);
  if (!target) {
    return false;  // refused elsewhere
  }
  // Judged as the most lenient server might read it: "//init", "/x/../init" and "/init/" included.
  std::vector<std::string> path;
  for (const std::string& segment : target->segments) {
    if (segment == "..") {
      if (!path.empty()) {
        path.pop_back();
      }
    } else if (!segment.empty() && segment != ".") {
      path.push_back(segment);
    }
  }
  const auto& all = wire::kInternalPaths;
  return path.size() == 1 && std::find(all.begin(), all.end(), "/" + path[0]) != all.end();
}

}  // namespace space
