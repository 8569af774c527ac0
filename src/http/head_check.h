// The one strict check of every raw HTTP/1.x head, request or response, made before anything else
// reads it (EGRESS H-1 to H-3, H-8). It refuses whatever two parsers could read differently: bare
// CR or LF, folded lines, space before a colon, repeated or conflicting lengths, any transfer
// coding but "chunked". What it returns is all that the rest of the program ever sees of a head.
// Pure functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "http/message.h"

namespace space::http {

struct HeadLimits {
  size_t bytes = 64 * 1024;  // with the final empty line
  size_t fields = 200;
  size_t target = 16 * 1024;
};
inline constexpr uint64_t kMaxContentLength = 1ULL << 53;  // what a JSON number can still count

// How the end of the body is found. RFC 9112, 6.3.
enum class Framing { kNone, kLength, kChunked, kUntilClose };

struct CheckedRequest {
  RequestHead head;
  int version_minor = 1;
  Framing framing = Framing::kNone;
  uint64_t content_length = 0;
  bool keep_alive = true;
  bool expects_continue = false;
};

struct CheckedResponse {
  ResponseHead head;
  int version_minor = 1;
  Framing framing = Framing::kUntilClose;  // as if the request was not HEAD
  uint64_t content_length = 0;
  bool keep_alive = true;
};

// Why a head was refused: the status a server answers before it closes.
struct Refusal {
  int status = 400;
  std::string reason;
};

// `raw` is the whole head with its empty line, and nothing more.
tl::expected<CheckedRequest, Refusal> CheckRequestHead(std::string_view raw,
                                                       const HeadLimits& limits = {});
tl::expected<CheckedResponse, Refusal> CheckResponseHead(std::string_view raw,
                                                         const HeadLimits& limits = {});

// Looks for the end of a head in a growing buffer; each byte is looked at once. Finds the commonest
// faults before the end, so that a client that never sends it is answered.
class HeadScanner {
 public:
  explicit HeadScanner(HeadLimits limits = {}) : limits_(limits) {}
  // `received` is everything since the head's first byte. Length of the head, or nullopt for more.
  tl::expected<std::optional<size_t>, Refusal> Scan(std::string_view received);

 private:
  HeadLimits limits_;
  size_t scanned_ = 0;
};

bool IsToken(std::string_view text);       // RFC 9110, 5.6.2
bool IsFieldValue(std::string_view text);  // no control bytes but tab
// True when the comma-separated list of any field `name` holds `token`.
bool HasToken(const Headers& headers, std::string_view name, std::string_view token);

}  // namespace space::http
