// The local user's API keys: ~/.config/space/credentials (0600), one "URL KEY" line per daemon.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace space::cli {

// ~/.config/space, or $XDG_CONFIG_HOME/space. Not made here.
std::string UserFolder();
std::string CredentialsPath();

Result<void> StoreKey(const std::string& url, const std::string& key);
// True when there was one.
Result<bool> ForgetKey(const std::string& url);
// The key for an address: SPACE_API_KEY, else the stored one, else E2B_API_KEY. A hosted E2B key in
// the environment so never shadows the local one.
std::optional<std::string> FindKey(const std::string& url);

// "e2b_" and hex digits; what a file holds is checked before it goes into a header.
bool LooksLikeKey(const std::string& text);

// True the first time it is asked on this account for `name`; remembers that in UserFolder().
bool IsFirstTime(const std::string& name);

}  // namespace space::cli
