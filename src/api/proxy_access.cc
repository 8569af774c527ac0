#include "api/proxy_access.h"

#include <array>
#include <charconv>
#include <string>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "node/guest_port.h"

namespace space {
namespace {

bool IsSame(std::string_view given, std::string_view wanted) {
  return given.size() == wanted.size() &&
         ::CRYPTO_memcmp(given.data(), wanted.data(), wanted.size()) == 0;
}

std::string SignatureOf(const std::string& text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned size = 0;
  if (::EVP_Digest(text.data(), text.size(), digest.data(), &size, ::EVP_sha256(), nullptr) != 1) {
    return {};
  }
  std::array<unsigned char, 4 * EVP_MAX_MD_SIZE / 3 + 5> encoded;
  const int length = ::EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(size));
  std::string signature = "v1_" + std::string(reinterpret_cast<const char*>(encoded.data()),
                                              static_cast<size_t>(length));
  signature.erase(signature.find_last_not_of('=') + 1);
  return signature;
}

bool IsExpired(const http::RequestHead& request, Micros now) {
  const auto target = http::ParseTarget(request.target);
  const auto expiration =
      target ? target->Query("signature_expiration") : std::optional<std::string_view>();
  if (!expiration) {
    return false;
  }
  int64_t seconds = 0;
  const auto [end, error] =
      std::from_chars(expiration->data(), expiration->data() + expiration->size(), seconds);
  return error != std::errc() || seconds < now / kMicrosPerSecond;
}

}  // namespace

bool IsSignedFor(const SandboxRecord& record, const http::RequestHead& request) {
  const auto target = http::ParseTarget(request.target);
  if (!target || target->path != "/files" || record.envd_token.empty()) {
    return false;
  }
  const auto signature = target->Query("signature");
  std::string text(target->Query("path").value_or(""));
  text += request.method == "GET" ? ":read:" : ":write:";
  text += std::string(target->Query("username").value_or("")) + ":" + record.envd_token;
  if (const auto expiration = target->Query("signature_expiration")) {
    text += ":" + std::string(*expiration);
  }
  return signature && IsSame(*signature, SignatureOf(text));
}

std::optional<ProxyProblem> CheckTrafficToken(const SandboxRecord& record,
                                              const ProxyTarget& target,
                                              const http::Headers& headers) {
  const std::string& wanted = record.traffic_token;
  if (wanted.empty() || target.port == kEnvdTcpPort) {
    return std::nullopt;
  }
  const auto token = headers.Find("E2B-Traffic-Access-Token");
  if (!token) {
    return ProxyProblem::kTokenMissing;
  }
  return IsSame(*token, wanted) ? std::nullopt : std::optional(ProxyProblem::kTokenInvalid);
}

bool MayWake(const SandboxRecord& record, const ProxyTarget& target,
             const http::RequestHead& request, Micros now) {
  if (target.port != kEnvdTcpPort || record.envd_token.empty()) {
    return true;
  }
  const auto token = request.headers.Find("X-Access-Token");
  return token ? IsSame(*token, record.envd_token)
               : IsSignedFor(record, request) && !IsExpired(request, now);
}

}  // namespace space
