#include "http/head_writer.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "http/head_check.h"

namespace space::http {
namespace {

// Belong to one hop, thus to us. RFC 9110, 7.6.1.
constexpr std::array kOurs = {
    std::string_view("Content-Length"),   std::string_view("Transfer-Encoding"),
    std::string_view("Trailer"),          std::string_view("Keep-Alive"),
    std::string_view("Proxy-Connection"), std::string_view("Expect")};

bool IsOurs(std::string_view name) {
  return std::any_of(kOurs.begin(), kOurs.end(),
                     [&](std::string_view ours) { return EqualsIgnoringCase(name, ours); });
}

Result<void> WriteFields(std::string& out, const Headers& headers, ConnectionField connection) {
  for (const Header& header : headers.all()) {
    if (!IsToken(header.name) || !IsFieldValue(header.value)) {
      return Fail(ErrorCode::kInvalidArgument, "header field cannot be sent", header.name);
    }
    if (IsOurs(header.name) || (connection != ConnectionField::kAsGiven &&
                                EqualsIgnoringCase(header.name, "Connection"))) {
      continue;
    }
    out.append(header.name).append(": ").append(header.value).append("\r\n");
  }
  if (connection == ConnectionField::kClose) {
    out.append("Connection: close\r\n");
  }
  return {};
}

void WriteLength(std::string& out, BodyLength length) {
  if (length.kind == BodyLength::Kind::kLength) {
    out.append("Content-Length: ").append(std::to_string(length.bytes)).append("\r\n");
  } else if (length.kind == BodyLength::Kind::kChunked) {
    out.append("Transfer-Encoding: chunked\r\n");
  }
  out.append("\r\n");
}

}  // namespace

Result<std::string> WriteRequestHead(const RequestHead& head, BodyLength length) {
  const auto fits = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!IsToken(head.method) || !head.target.starts_with('/') ||
      !std::all_of(head.target.begin(), head.target.end(), fits)) {
    return Fail(ErrorCode::kInvalidArgument, "request cannot be sent", head.target);
  }
  std::string out = head.method + " " + head.target + " HTTP/1.1\r\n";
  if (!head.headers.Find("Host").has_value()) {
    out.append("Host: localhost\r\n");
  }
  SPACE_TRY_VOID(WriteFields(out, head.headers, ConnectionField::kAsGiven), "write request head");
  WriteLength(out, length);
  return out;
}

Result<std::string> WriteResponseHead(const ResponseHead& head, BodyLength length,
                                      ConnectionField connection) {
  if (head.status < 100 || head.status > 599) {
    return Fail(ErrorCode::kInvalidArgument, "status cannot be sent", std::to_string(head.status));
  }
  std::string out = "HTTP/1.1 " + std::to_string(head.status) + " ";
  out.append(ReasonPhrase(head.status)).append("\r\n");
  SPACE_TRY_VOID(WriteFields(out, head.headers, connection), "write response head");
  WriteLength(out, length);
  return out;
}

}  // namespace space::http
