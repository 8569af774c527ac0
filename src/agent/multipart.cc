#include "agent/multipart.h"

#include <algorithm>

#include "http/message.h"

namespace space::agent {
namespace {

constexpr size_t kMaxBoundaryBytes = 200;  // RFC 2046 says 70; some clients exceed it

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

tl::unexpected<Error> Malformed(const char* what) {
  return Fail(ErrorCode::kInvalidArgument, std::string("malformed multipart body: ") + what);
}

// Takes `name=value` or `name="value"` after a ';'. In quotes a backslash escapes a quote or
// itself.
std::optional<http::Header> TakeParameter(std::string_view& rest) {
  const size_t semicolon = rest.find(';');
  if (semicolon == std::string_view::npos) {
    return std::nullopt;
  }
  rest.remove_prefix(semicolon + 1);
  const size_t equals = rest.find('=');
  if (equals == std::string_view::npos) {
    return std::nullopt;
  }
  http::Header parameter{.name = std::string(Trim(rest.substr(0, equals))), .value = {}};
  rest = rest.substr(equals + 1);
  rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t")));
  if (!rest.starts_with('"')) {
    const size_t end = std::min(rest.size(), rest.find(';'));
    parameter.value = Trim(rest.substr(0, end));
    rest.remove_prefix(end);
    return parameter;
  }
  size_t at = 1;
  while (at < rest.size() && rest[at] != '"') {
    if (rest[at] == '\\' && at + 1 < rest.size() && (rest[at + 1] == '"' || rest[at + 1] == '\\')) {
      ++at;
    }
    parameter.value += rest[at++];
  }
  rest.remove_prefix(std::min(rest.size(), at + 1));
  return parameter;
}

void ReadDisposition(std::string_view value, PartHead& head) {
  std::string_view rest = value;
  while (auto parameter = TakeParameter(rest)) {
    if (http::EqualsIgnoringCase(parameter->name, "name")) {
      head.name = std::move(parameter->value);
    } else if (http::EqualsIgnoringCase(parameter->name, "filename")) {
      head.filename = std::move(parameter->value);
    }
  }
}

}  // namespace

Result<std::string> MultipartBoundary(std::string_view content_type) {
  std::string_view rest = content_type;
  while (auto parameter = TakeParameter(rest)) {
    if (http::EqualsIgnoringCase(parameter->name, "boundary")) {
      if (parameter->value.empty() || parameter->value.size() > kMaxBoundaryBytes) {
        break;
      }
      return std::move(parameter->value);
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "multipart body without a usable boundary");
}

// The first boundary may stand at the very start: a CRLF put before it makes it like the others.
MultipartParser::MultipartParser(std::string_view boundary, MultipartSink& sink)
    : delimiter_("\r\n--" + std::string(boundary)), sink_(sink), buffer_("\r\n") {}

Result<void> MultipartParser::Feed(std::string_view bytes) {
  if (state_ == State::kEpilogue) {
    return {};  // ignored, RFC 2046, 5.1.1
  }
  buffer_ += bytes;
  while (true) {
    auto advanced = Advance();
    if (!advanced) {
      return Fail(std::move(advanced).error());
    }
    if (!*advanced) {
      return {};
    }
  }
}

Result<void> MultipartParser::Finish() const {
  if (state_ != State::kEpilogue) {
    return Malformed("the closing boundary is missing");
  }
  return {};
}

Result<bool> MultipartParser::Advance() {
  switch (state_) {
    case State::kPreamble:
      return SkipPreamble();
    case State::kAfterBoundary:
      return AfterBoundary();
    case State::kHead:
      return ReadHead();
    case State::kData:
      return ReadData();
    case State::kEpilogue:
      buffer_.clear();
      return false;
  }
  return false;
}

Result<bool> MultipartParser::SkipPreamble() {
  const size_t at = buffer_.find(delimiter_);
  if (at == std::string::npos) {
    if (buffer_.size() > kMaxHeadBytes) {
      return Malformed("no boundary at its start");
    }
    return false;
  }
  buffer_.erase(0, at + delimiter_.size());
  state_ = State::kAfterBoundary;
  return true;
}

Result<bool> MultipartParser::AfterBoundary() {
  const size_t blanks = std::min(buffer_.size(), buffer_.find_first_not_of(" \t"));
  if (blanks > kMaxHeadBytes) {
    return Malformed("a boundary line is too long");
  }
  if (buffer_.size() < blanks + 2) {
    return false;
  }
  const std::string_view next = std::string_view(buffer_).substr(blanks, 2);
  if (blanks == 0 && next == "--") {
    state_ = State::kEpilogue;
    return true;
  }
  if (next != "\r\n") {
    return Malformed("garbage after a boundary");
  }
  if (++parts_ > kMaxParts) {
    return Malformed("too many parts");
  }
  buffer_.erase(0, blanks);  // the CRLF stays: it may be the first half of the head's end
  state_ = State::kHead;
  return true;
}

Result<bool> MultipartParser::ReadHead() {
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos ? buffer_.size() > kMaxHeadBytes : end > kMaxHeadBytes) {
    return Malformed("the head of a part is too long");
  }
  if (end == std::string::npos) {
    return false;
  }
  PartHead head;
  std::string_view lines = std::string_view(buffer_).substr(0, end);
  while (!lines.empty()) {
    const size_t line_end = std::min(lines.size(), lines.find("\r\n"));
    const std::string_view line = lines.substr(0, line_end);
    lines.remove_prefix(std::min(lines.size(), line_end + 2));
    const size_t colon = line.find(':');
    if (line.empty()) {
      continue;
    }
    if (colon == std::string_view::npos) {
      return Malformed("a header line has no colon");
    }
    if (http::EqualsIgnoringCase(Trim(line.substr(0, colon)), "Content-Disposition")) {
      ReadDisposition(line.substr(colon + 1), head);
    }
  }
  buffer_.erase(0, end + 4);
  state_ = State::kData;
  auto begun = sink_.OnPartBegin(head);
  if (!begun) {
    return Fail(std::move(begun).error());
  }
  return true;
}

Result<bool> MultipartParser::ReadData() {
  const size_t at = buffer_.find(delimiter_);
  const bool is_last = at != std::string::npos;
  // Without a boundary in sight its beginning may still be at the end of the buffer.
  const size_t ready = is_last ? at
                       : buffer_.size() >= delimiter_.size()
                           ? buffer_.size() - (delimiter_.size() - 1)
                           : 0;
  if (ready > 0) {
    auto taken = sink_.OnPartData(std::string_view(buffer_).substr(0, ready));
    if (!taken) {
      return Fail(std::move(taken).error());
    }
  }
  buffer_.erase(0, ready);
  if (!is_last) {
    return false;
  }
  buffer_.erase(0, delimiter_.size());
  auto ended = sink_.OnPartEnd();
  if (!ended) {
    return Fail(std::move(ended).error());
  }
  state_ = State::kAfterBoundary;
  return true;
}

}  // namespace space::agent
