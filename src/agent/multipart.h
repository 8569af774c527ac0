// multipart/form-data (RFC 7578) as a push parser with bounded memory. All of its input is a
// client's.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::agent {

struct PartHead {
  std::string name;
  std::optional<std::string> filename;  // as sent, folders included
};

class MultipartSink {
 public:
  virtual ~MultipartSink() = default;
  virtual Result<void> OnPartBegin(const PartHead& head) = 0;
  virtual Result<void> OnPartData(std::string_view bytes) = 0;
  virtual Result<void> OnPartEnd() = 0;
};

// The boundary of a Content-Type. kInvalidArgument when it has none, or an empty or too long one.
Result<std::string> MultipartBoundary(std::string_view content_type);

class MultipartParser {
 public:
  static constexpr size_t kMaxHeadBytes = 16 * 1024;
  static constexpr size_t kMaxParts = 10'000;

  MultipartParser(std::string_view boundary, MultipartSink& sink);

  // Errors of the sink come back as they are; kInvalidArgument for malformed input.
  Result<void> Feed(std::string_view bytes);
  // After the last byte. kInvalidArgument when the closing boundary is missing.
  Result<void> Finish() const;

 private:
  enum class State { kPreamble, kAfterBoundary, kHead, kData, kEpilogue };
  // One step; false when more bytes are needed.
  Result<bool> Advance();
  Result<bool> SkipPreamble();
  Result<bool> AfterBoundary();
  Result<bool> ReadHead();
  Result<bool> ReadData();

  std::string delimiter_;  // CRLF "--" boundary
  MultipartSink& sink_;
  State state_ = State::kPreamble;
  std::string buffer_;
  size_t parts_ = 0;
};

}  // namespace space::agent
