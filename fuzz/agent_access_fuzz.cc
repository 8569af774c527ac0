// Signed URLs, Basic users and passwd lines. The input is a request target, "\n", an Authorization
// value, "\n", the text of /etc/passwd.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/access.h"
#include "agent/users.h"

namespace {

std::string_view TakeLine(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace space;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view raw_target = TakeLine(rest);
  const std::string authorization(TakeLine(rest));
  agent::Settings settings;
  settings.access_token = "a token that the input does not know";
  const http::RequestHead request{.method = "GET",
                                  .target = std::string(raw_target),
                                  .headers = {{"Authorization", authorization}}};
  if (const auto target = http::ParseTarget(raw_target)) {
    if (agent::CheckFileAccess(request, *target, "read", settings, 0)) {
      std::abort();  // a signature was forged
    }
  }
  (void)agent::SelectUser(request, std::nullopt, settings);
  const agent::UserDatabase users(rest, rest);
  const auto root = users.Find("root");
  if (root && (root->uid == UINT32_MAX || root->home.empty() || root->home[0] != '/')) {
    std::abort();
  }
  return 0;
}
