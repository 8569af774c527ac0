#include "agent/access.h"

#include <charconv>

// The one-shot functions pull in all of libcrypto's providers; these do not.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "agent/base64.h"

namespace space::agent {
namespace {

constexpr std::string_view kTokenHeader = "X-Access-Token";

Result<std::optional<std::string>> BasicUser(const http::RequestHead& request) {
  const auto header = request.headers.Find("Authorization");
  constexpr std::string_view kScheme = "Basic ";
  if (!header || header->size() < kScheme.size() ||
      !http::EqualsIgnoringCase(header->substr(0, kScheme.size()), kScheme)) {
    return std::nullopt;
  }
  const auto decoded = DecodeBase64(header->substr(kScheme.size()));
  const size_t colon = decoded ? decoded->find(':') : std::string::npos;
  if (colon == std::string::npos) {
    return Fail(ErrorCode::kUnauthenticated, "malformed Basic Authorization header");
  }
  return decoded->substr(0, colon);
}

}  // namespace

bool EqualsInConstantTime(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

bool HasValidToken(const http::RequestHead& request, const Settings& settings) {
  return settings.access_token.empty() ||
         EqualsInConstantTime(request.headers.Find(kTokenHeader).value_or(""),
                              settings.access_token);
}

std::string FileSignature(std::string_view path, std::string_view operation, std::string_view user,
                          std::string_view token, std::optional<std::string_view> expiration) {
  std::string text(path);
  for (const std::string_view part : {operation, user, token}) {
    text += ':';
    text += part;
  }
  if (expiration) {
    text += ':';
    text += *expiration;
  }
  SHA256_CTX hash;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Init(&hash);
  SHA256_Update(&hash, text.data(), text.size());
  SHA256_Final(digest, &hash);
  std::string signature = "v1_";
  AppendBase64({reinterpret_cast<const char*>(digest), sizeof(digest)}, signature);
  signature.erase(signature.find_last_not_of('=') + 1);
  return signature;
}

Result<void> CheckFileAccess(const http::RequestHead& request, const http::Target& target,
                             std::string_view operation, const Settings& settings,
                             int64_t now_seconds) {
  if (settings.access_token.empty()) {
    return {};
  }
  if (request.headers.Find(kTokenHeader)) {
    if (HasValidToken(request, settings)) {
      return {};
    }
    return Fail(ErrorCode::kUnauthenticated, "access token present in header but does not match");
  }
  const auto signature = target.Query("signature");
  if (!signature) {
    return Fail(ErrorCode::kUnauthenticated, "missing signature query parameter");
  }
  const auto expiration = target.Query("signature_expiration");
  const std::string expected =
      FileSignature(target.Query("path").value_or(""), operation,
                    target.Query("username").value_or(""), settings.access_token, expiration);
  if (!EqualsInConstantTime(*signature, expected)) {
    return Fail(ErrorCode::kUnauthenticated, "invalid signature");
  }
  if (expiration) {
    int64_t seconds = 0;  // an unreadable number counts as expired
    std::from_chars(expiration->data(), expiration->data() + expiration->size(), seconds);
    if (seconds < now_seconds) {
      return Fail(ErrorCode::kUnauthenticated, "signature is already expired");
    }
  }
  return {};
}

Result<User> SelectUser(const http::RequestHead& request,
                        std::optional<std::string_view> from_query, const Settings& settings) {
  const auto basic = BasicUser(request);
  if (!basic) {
    return Fail(basic.error());
  }
  std::string_view name = settings.default_user;
  if (basic->has_value() && !(*basic)->empty()) {
    name = **basic;
  } else if (from_query && !from_query->empty()) {
    name = *from_query;
  }
  return UserDatabase::Load().Find(name);
}

}  // namespace space::agent
