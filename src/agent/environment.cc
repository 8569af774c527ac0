#include "agent/environment.h"

namespace space::agent {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string_view Unquote(std::string_view text) {
  const bool is_quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                         text.front() == text.back();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

bool IsName(std::string_view name) {
  return !name.empty() && name.find('=') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

Environment ParseEnvironmentFile(std::string_view text) {
  Environment parsed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.starts_with("export ")) {
      line = Trim(line.substr(7));
    }
    const size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos || equals == 0 ||
        line.find('\0') != std::string_view::npos) {
      continue;
    }
    parsed[std::string(Trim(line.substr(0, equals)))] = Unquote(Trim(line.substr(equals + 1)));
  }
  return parsed;
}

Result<Environment> ComposeEnvironment(const Environment& image, const User& user,
                                       const Environment& sandbox, const Environment& request) {
  Environment composed{{"PATH", std::string(kDefaultPath)}};
  const auto add = [&composed](const Environment& more) {
    for (const auto& [name, value] : more) {
      composed[name] = value;
    }
  };
  add(image);
  add({{"HOME", user.home}, {"USER", user.name}, {"LOGNAME", user.name}, {"E2B_SANDBOX", "true"}});
  add(sandbox);
  add(request);
  for (const auto& [name, value] : composed) {
    if (!IsName(name) || value.find('\0') != std::string::npos) {
      return Fail(ErrorCode::kInvalidArgument, "invalid environment variable", name);
    }
  }
  return composed;
}

std::vector<std::string> AsStrings(const Environment& environment) {
  std::vector<std::string> strings;
  strings.reserve(environment.size());
  for (const auto& [name, value] : environment) {
    strings.push_back(name + "=" + value);
  }
  return strings;
}

}  // namespace space::agent
