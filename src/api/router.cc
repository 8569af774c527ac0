#include "api/router.h"

#include <algorithm>

namespace space {
namespace {

constexpr size_t kMaxIdBytes = 64;

// Parameters of the pattern when it fits; `literals` counts how specific it is.
std::optional<std::vector<std::string>> Fit(std::string_view pattern,
                                            const std::vector<std::string>& segments,
                                            size_t& literals) {
  std::vector<std::string> parameters;
  literals = 0;
  size_t at = 0;
  while (!pattern.empty()) {
    pattern.remove_prefix(1);  // '/'
    const size_t end = std::min(pattern.find('/'), pattern.size());
    const std::string_view part = pattern.substr(0, end);
    pattern.remove_prefix(end);
    if (at == segments.size()) {
      return std::nullopt;
    }
    if (part.starts_with('{') && !segments[at].empty()) {
      parameters.push_back(segments[at]);
    } else if (part == segments[at]) {
      ++literals;
    } else {
      return std::nullopt;
    }
    ++at;
  }
  if (at != segments.size()) {
    return std::nullopt;
  }
  return parameters;
}

}  // namespace

Match FindRoute(std::span<const Route> routes, std::string_view method,
                const std::vector<std::string>& segments) {
  Match best;
  size_t best_literals = 0;
  for (const Route& route : routes) {
    size_t literals = 0;
    auto parameters = Fit(route.pattern, segments, literals);
    if (!parameters) {
      continue;
    }
    best.path_exists = true;
    if (route.method == method && (best.route == nullptr || literals > best_literals)) {
      best.route = &route;
      best.parameters = *std::move(parameters);
      best_literals = literals;
    }
  }
  return best;
}

Result<std::string> SandboxIdOf(std::string_view parameter) {
  const auto is_id = [](std::string_view text) {
    return !text.empty() && text.size() <= kMaxIdBytes &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") == std::string_view::npos;
  };
  const size_t dash = parameter.find('-');
  const std::string_view id = parameter.substr(0, dash);
  if (!is_id(id) || (dash != std::string_view::npos && !is_id(parameter.substr(dash + 1)))) {
    return Fail(ErrorCode::kInvalidArgument, "Invalid sandbox ID");
  }
  return std::string(id);
}

}  // namespace space
