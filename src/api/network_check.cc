#include "api/network_check.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "api/json_fields.h"

namespace space {
namespace {

constexpr std::string_view kEverything = "0.0.0.0/0";

bool IsAddress(std::string_view text, int& bits) {
  std::array<unsigned char, 16> parsed;
  const std::string copy(text);
  bits = copy.find(':') == std::string::npos ? 32 : 128;
  return ::inet_pton(bits == 32 ? AF_INET : AF_INET6, copy.c_str(), parsed.data()) == 1;
}

bool IsAddressOrCidr(std::string_view text) {
  int bits = 0;
  const size_t slash = text.find('/');
  if (!IsAddress(text.substr(0, slash), bits)) {
    return false;
  }
  if (slash == std::string_view::npos) {
    return true;
  }
  const std::string_view length = text.substr(slash + 1);
  int value = -1;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), value);
  return error == std::errc() && end == length.data() + length.size() && value >= 0 &&
         value <= bits;
}

bool IsHostName(std::string_view name) {
  return !name.empty() && name.size() <= 253 && name.front() != '.' && name.front() != '-' &&
         name.find("..") == std::string_view::npos &&
         std::all_of(name.begin(), name.end(), [](unsigned char letter) {
           return std::isalnum(letter) != 0 || letter == '-' || letter == '.' || letter == '_';
         });
}

bool IsDomain(std::string_view text) {
  if (text.starts_with("*.")) {
    text.remove_prefix(2);
  }
  return text == "*" || IsHostName(text);
}

Result<void> CheckRules(const JsonFields& network) {
  SPACE_TRY(const std::vector<std::string> deny, network.Texts("denyOut"), "");
  SPACE_TRY(const std::vector<std::string> allow, network.Texts("allowOut"), "");
  for (const std::string& entry : deny) {
    if (!IsAddressOrCidr(entry)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "network.denyOut: must be IP addresses or CIDR blocks, not", entry);
    }
  }
  const bool denies_all = std::find(deny.begin(), deny.end(), kEverything) != deny.end();
  for (const std::string& entry : allow) {
    if (IsAddressOrCidr(entry)) {
      continue;
    }
    if (!IsDomain(entry)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "network.allowOut: must be IP addresses, CIDR blocks or domains, not", entry);
    }
    if (!denies_all) {
      return Fail(ErrorCode::kInvalidArgument,
                  "network.allowOut: a domain needs 0.0.0.0/0 in network.denyOut", entry);
    }
  }
  return {};
}

}  // namespace

bool IsMaskHost(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    const std::string_view port = text.substr(colon + 1);
    const bool is_number = !port.empty() && port.size() <= 5 &&
                           port.find_first_not_of("0123456789") == std::string_view::npos;
    if (port != "${PORT}" && !is_number) {
      return false;
    }
    text = text.substr(0, colon);
  }
  // "${PORT}-name.example" is allowed as well.
  std::string name(text);
  const size_t place = name.find("${PORT}");
  if (place != std::string::npos) {
    name.replace(place, 7, "1");
  }
  return IsHostName(name);
}

Result<NetworkOptions> ReadNetwork(const json::object& body) {
  NetworkOptions options;
  SPACE_TRY(const json::object* object, JsonFields(body).Object("network"), "");
  if (object == nullptr) {
    return options;
  }
  const JsonFields network(*object, "network.");
  SPACE_TRY_VOID(CheckRules(network), "");
  if (network.IsGiven("egressProxy")) {
    return Fail(ErrorCode::kPermissionDenied, "network.egressProxy is not available");
  }
  for (const std::string_view name : {"rules", "httpsPorts"}) {
    if (network.IsGiven(name)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "network." + std::string(name) + " is not supported by this version");
    }
  }
  SPACE_TRY(const std::optional<bool> is_public, network.Flag("allowPublicTraffic"), "");
  options.is_public = is_public.value_or(true);
  SPACE_TRY(const std::optional<std::string> mask, network.Text("maskRequestHost"), "");
  if (mask && !IsMaskHost(*mask)) {
    return Fail(ErrorCode::kInvalidArgument,
                "network.maskRequestHost must be a host name with an optional port, not", *mask);
  }
  // Known fields alone are kept: what we do not know must not come back as if it were in force.
  json::object kept;
  for (const char* name : {"allowOut", "denyOut", "allowPublicTraffic", "maskRequestHost"}) {
    if (const json::value* value = object->if_contains(name)) {
      kept[name] = *value;
    }
  }
  options.kept = json::serialize(kept);
  return options;
}

}  // namespace space
