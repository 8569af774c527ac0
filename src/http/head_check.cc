#include "http/head_check.h"

#include <algorithm>
#include <utility>

namespace space::http {
namespace {

using Unexpected = tl::unexpected<Refusal>;

Unexpected Refuse(std::string reason, int status = 400) {
  return Unexpected(Refusal{status, std::move(reason)});
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlnum(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsTokenChar(char c) {
  return IsAlnum(c) || std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool IsHostChar(char c) {
  return IsAlnum(c) || std::string_view(".-_:[]").find(c) != std::string_view::npos;
}

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Takes one line off `rest`; every line must end in CR LF and hold neither inside.
tl::expected<std::string_view, Refusal> TakeLine(std::string_view& rest) {
  const size_t end = rest.find_first_of("\r\n");
  if (end == std::string_view::npos || rest.substr(end, 2) != "\r\n") {
    return Refuse("a line of the head does not end in CR LF");
  }
  const std::string_view line = rest.substr(0, end);
  rest.remove_prefix(end + 2);
  return line;
}

struct Fields {
  Headers headers;
  std::optional<uint64_t> content_length;
  bool is_chunked = false;
  size_t hosts = 0;
};

tl::expected<uint64_t, Refusal> ParseLength(std::string_view value) {
  if (value.empty() || value.size() > 16 || !std::all_of(value.begin(), value.end(), IsDigit)) {
    return Refuse("Content-Length is not a number");
  }
  uint64_t length = 0;
  for (const char c : value) {
    length = length * 10 + static_cast<uint64_t>(c - '0');
  }
  if (length > kMaxContentLength) {
    return Refuse("Content-Length is too large");
  }
  return length;
}

// The fields that decide where a message ends and whom it is for.
tl::expected<void, Refusal> NoteField(Fields& fields, std::string_view name,
                                      std::string_view value) {
  if (EqualsIgnoringCase(name, "Content-Length")) {
    if (fields.content_length.has_value()) {
      return Refuse("more than one Content-Length");
    }
    auto length = ParseLength(value);
    if (!length) {
      return Unexpected(std::move(length).error());
    }
    fields.content_length = *length;
  } else if (EqualsIgnoringCase(name, "Transfer-Encoding")) {
    if (fields.is_chunked) {
      return Refuse("more than one Transfer-Encoding");
    }
    if (!EqualsIgnoringCase(value, "chunked")) {
      return Refuse("Transfer-Encoding is not \"chunked\"");
    }
    fields.is_chunked = true;
  } else if (EqualsIgnoringCase(name, "Host")) {
    if (++fields.hosts > 1) {
      return Refuse("more than one Host");
    }
    if (value.empty() || !std::all_of(value.begin(), value.end(), IsHostChar)) {
      return Refuse("Host is not a host name");
    }
  }
  return {};
}

tl::expected<Fields, Refusal> ParseFields(std::string_view rest, const HeadLimits& limits) {
  Fields fields;
  while (true) {
    const auto line = TakeLine(rest);
    if (!line) {
      return Unexpected(line.error());
    }
    if (line->empty()) {
      break;
    }
    if (fields.headers.all().size() == limits.fields) {
      return Refuse("too many header fields", 431);
    }
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos) {
      return Refuse("a header field has no colon");
    }
    // Also refuses folded lines and space before the colon: neither is part of a token.
    const std::string_view name = line->substr(0, colon);
    if (!IsToken(name)) {
      return Refuse("a header field's name is not a token");
    }
    const std::string_view value = Trim(line->substr(colon + 1));
    if (!IsFieldValue(value)) {
      return Refuse("a header field's value holds a control byte");
    }
    auto noted = NoteField(fields, name, value);
    if (!noted) {
      return Unexpected(std::move(noted).error());
    }
    fields.headers.Add(std::string(name), std::string(value));
  }
  if (!rest.empty()) {
    return Refuse("bytes after the head");
  }
  if (fields.is_chunked && fields.content_length.has_value()) {
    return Refuse("both Content-Length and Transfer-Encoding");
  }
  return fields;
}

struct RequestLine {
  std::string_view method;
  std::string_view target;
  int version_minor = 1;
};

tl::expected<int, Refusal> ParseVersion(std::string_view text) {
  if (text == "HTTP/1.1") {
    return 1;
  }
  if (text == "HTTP/1.0") {
    return 0;
  }
  if (text.size() == 8 && text.starts_with("HTTP/") && IsDigit(text[5]) && text[6] == '.' &&
      IsDigit(text[7])) {
    return Refuse("only HTTP/1.1 is spoken here", 505);
  }
  return Refuse("the first line has no HTTP version");
}

tl::expected<RequestLine, Refusal> ParseRequestLine(std::string_view line,
                                                    const HeadLimits& limits) {
  RequestLine parsed;
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) {
    return Refuse("the request line is not method, target and version");
  }
  parsed.method = line.substr(0, first);
  parsed.target = line.substr(first + 1, second - first - 1);
  if (!IsToken(parsed.method) || parsed.method.size() > 32) {
    return Refuse("the method is not a token");
  }
  const auto version = ParseVersion(line.substr(second + 1));
  if (!version) {
    return Unexpected(version.error());
  }
  parsed.version_minor = *version;
  if (parsed.method == "CONNECT") {
    return Refuse("CONNECT is not offered", 405);
  }
  if (parsed.target.size() > limits.target) {
    return Refuse("the request target is too long", 414);
  }
  const auto fits = [](char c) { return c > ' ' && c < '\x7f' && c != '#'; };
  if (!parsed.target.starts_with('/') ||
      !std::all_of(parsed.target.begin(), parsed.target.end(), fits)) {
    return Refuse("the request target is not a path");
  }
  return parsed;
}

bool KeepsAlive(const Headers& headers, int version_minor) {
  return version_minor == 1 && !HasToken(headers, "Connection", "close");
}

}  // namespace

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

bool IsFieldValue(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

bool HasToken(const Headers& headers, std::string_view name, std::string_view token) {
  for (const Header& header : headers.all()) {
    if (!EqualsIgnoringCase(header.name, name)) {
      continue;
    }
    std::string_view rest = header.value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (EqualsIgnoringCase(Trim(rest.substr(0, comma)), token)) {
        return true;
      }
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

tl::expected<CheckedRequest, Refusal> CheckRequestHead(std::string_view raw,
                                                       const HeadLimits& limits) {
  if (raw.size() > limits.bytes) {
    return Refuse("the head is too large", 431);
  }
  const auto first_line = TakeLine(raw);
  if (!first_line) {
    return Unexpected(first_line.error());
  }
  const auto line = ParseRequestLine(*first_line, limits);
  if (!line) {
    return Unexpected(line.error());
  }
  auto fields = ParseFields(raw, limits);
  if (!fields) {
    return Unexpected(std::move(fields).error());
  }
  if (line->version_minor == 1 && fields->hosts == 0) {
    return Refuse("no Host");
  }
  if (line->version_minor == 0 && fields->is_chunked) {
    return Refuse("Transfer-Encoding in HTTP/1.0");
  }
  CheckedRequest request;
  request.version_minor = line->version_minor;
  request.content_length = fields->content_length.value_or(0);
  if (fields->is_chunked) {
    request.framing = Framing::kChunked;
  } else if (request.content_length > 0) {
    request.framing = Framing::kLength;
  }
  request.keep_alive = KeepsAlive(fields->headers, line->version_minor);
  if (const auto expect = fields->headers.Find("Expect"); expect && line->version_minor == 1) {
    if (!EqualsIgnoringCase(*expect, "100-continue")) {
      return Refuse("an expectation other than 100-continue", 417);
    }
    request.expects_continue = request.framing != Framing::kNone;
  }
  request.head.method = std::string(line->method);
  request.head.target = std::string(line->target);
  request.head.headers = std::move(fields->headers);
  return request;
}

tl::expected<CheckedResponse, Refusal> CheckResponseHead(std::string_view raw,
                                                         const HeadLimits& limits) {
  if (raw.size() > limits.bytes) {
    return Refuse("the head is too large", 502);
  }
  const auto line = TakeLine(raw);
  if (!line) {
    return Unexpected(line.error());
  }
  const auto version = ParseVersion(line->substr(0, 8));
  if (!version) {
    return Unexpected(version.error());
  }
  // "HTTP/1.1 200" with the reason, which is dropped; some servers leave out the space before it.
  const std::string_view status = line->substr(std::min<size_t>(8, line->size()));
  if (status.size() < 4 || status[0] != ' ' || !IsDigit(status[1]) || !IsDigit(status[2]) ||
      !IsDigit(status[3]) || (status.size() > 4 && status[4] != ' ') || !IsFieldValue(status)) {
    return Refuse("the status line has no status");
  }
  CheckedResponse response;
  response.head.status = (status[1] - '0') * 100 + (status[2] - '0') * 10 + (status[3] - '0');
  if (response.head.status < 100 || response.head.status > 599) {
    return Refuse("the status is out of range");
  }
  auto fields = ParseFields(raw, limits);
  if (!fields) {
    return Unexpected(std::move(fields).error());
  }
  const bool is_bodiless = response.head.status < 200 || response.head.status == 204;
  if (fields->is_chunked && (*version == 0 || is_bodiless)) {
    return Refuse("Transfer-Encoding where none may be");
  }
  response.version_minor = *version;
  response.content_length = fields->content_length.value_or(0);
  if (is_bodiless || response.head.status == 304) {
    response.framing = Framing::kNone;
  } else if (fields->is_chunked) {
    response.framing = Framing::kChunked;
  } else if (fields->content_length.has_value()) {
    response.framing = response.content_length > 0 ? Framing::kLength : Framing::kNone;
  }
  response.keep_alive =
      KeepsAlive(fields->headers, *version) && response.framing != Framing::kUntilClose;
  response.head.headers = std::move(fields->headers);
  return response;
}

tl::expected<std::optional<size_t>, Refusal> HeadScanner::Scan(std::string_view received) {
  for (; scanned_ < received.size(); ++scanned_) {
    const char c = received[scanned_];
    if (scanned_ >= limits_.bytes) {
      return Refuse("the head is too large", 431);
    }
    if (scanned_ == 0 && !IsTokenChar(c)) {
      return Refuse("this is not HTTP");
    }
    if (c == '\0') {
      return Refuse("a NUL byte in the head");
    }
    const char before = scanned_ > 0 ? received[scanned_ - 1] : '\0';
    if ((c == '\n') != (before == '\r')) {
      return Refuse("a line of the head does not end in CR LF");
    }
    if (c == '\n' && scanned_ >= 3 && received.substr(scanned_ - 3, 4) == "\r\n\r\n") {
      return std::optional<size_t>(++scanned_);
    }
  }
  return std::optional<size_t>();
}

}  // namespace space::http
