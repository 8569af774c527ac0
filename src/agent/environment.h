// The environment that a process of the sandbox starts with (E2B.md 3.3, 2).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/users.h"
#include "base/result.h"

namespace space::agent {

using Environment = std::map<std::string, std::string>;

constexpr std::string_view kDefaultPath =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// NAME=value lines as pam_env reads /etc/environment: optional "export ", one pair of quotes
// removed,
// '#' comments. Lines that do not parse are skipped.
Environment ParseEnvironmentFile(std::string_view text);

// Later wins: PATH, `image` (/etc/environment), HOME, USER and LOGNAME, E2B_SANDBOX, `sandbox`,
// `request`.
//   errors: kInvalidArgument names a variable that is empty or has '=' or NUL
Result<Environment> ComposeEnvironment(const Environment& image, const User& user,
                                       const Environment& sandbox, const Environment& request);

std::vector<std::string> AsStrings(const Environment& environment);

}  // namespace space::agent
