#include "cli/credentials.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <sstream>

#include "base/fd.h"

namespace space::cli {
namespace {

constexpr std::string_view kHead =
    "# API keys of `space`, one address and key a line. Keep it private.\n";

// NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets the environment
const char* Environment(const char* name) { return std::getenv(name); }

std::string HomeFolder() {
  if (const char* home = Environment("HOME"); home != nullptr && *home != '\0') {
    return home;
  }
  const passwd* entry = ::getpwuid(::getuid());  // NOLINT(concurrency-mt-unsafe): one thread yet
  return entry == nullptr ? "/root" : entry->pw_dir;
}

std::map<std::string, std::string> ReadKeys() {
  std::map<std::string, std::string> keys;
  std::istringstream lines(ReadFile(CredentialsPath()).value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string url;
    std::string key;
    if (words >> url >> key && url.front() != '#' && LooksLikeKey(key)) {
      keys[url] = key;
    }
  }
  return keys;
}

Result<void> WriteKeys(const std::map<std::string, std::string>& keys) {
  SPACE_TRY_VOID(MakeDirectories(UserFolder(), 0700), "store key");
  std::string text(kHead);
  for (const auto& [url, key] : keys) {
    text += url + " " + key + "\n";
  }
  return WriteFileAtomically(CredentialsPath(), text, 0600);
}

}  // namespace

std::string UserFolder() {
  if (const char* base = Environment("XDG_CONFIG_HOME"); base != nullptr && *base == '/') {
    return std::string(base) + "/space";
  }
  return HomeFolder() + "/.config/space";
}

std::string CredentialsPath() { return UserFolder() + "/credentials"; }

bool LooksLikeKey(const std::string& text) {
  return text.size() > 4 && text.size() < 200 && text.starts_with("e2b_") &&
         text.find_first_not_of("0123456789abcdef", 4) == std::string::npos;
}

Result<void> StoreKey(const std::string& url, const std::string& key) {
  if (!LooksLikeKey(key)) {
    return Fail(ErrorCode::kInvalidArgument, "API key of the daemon is not e2b_ and hex digits");
  }
  auto keys = ReadKeys();
  keys[url] = key;
  return WriteKeys(keys);
}

Result<bool> ForgetKey(const std::string& url) {
  auto keys = ReadKeys();
  if (keys.erase(url) == 0) {
    return false;
  }
  if (keys.empty()) {
    (void)::unlink(CredentialsPath().c_str());
    return true;
  }
  SPACE_TRY_VOID(WriteKeys(keys), "forget key");
  return true;
}

std::optional<std::string> FindKey(const std::string& url) {
  if (const char* key = Environment("SPACE_API_KEY"); key != nullptr && *key != '\0') {
    return key;
  }
  const auto keys = ReadKeys();
  if (const auto found = keys.find(url); found != keys.end()) {
    return found->second;
  }
  if (const char* key = Environment("E2B_API_KEY"); key != nullptr && *key != '\0') {
    return key;
  }
  return std::nullopt;
}

bool IsFirstTime(const std::string& name) {
  const std::string stamp = UserFolder() + "/told-" + name;
  if (::access(stamp.c_str(), F_OK) == 0) {
    return false;
  }
  // Without a writable home it is told each time, which is better than never.
  if (MakeDirectories(UserFolder(), 0700)) {
    (void)WriteFileAtomically(stamp, "");
  }
  return true;
}

}  // namespace space::cli
