// Connect framing: whole input at once and byte by byte must give the same envelopes or fail alike.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/envelope.h"

namespace {

// The envelopes written again, and whether parsing failed.
std::string Parse(std::string_view input, size_t chunk, bool& has_failed) {
  space::agent::EnvelopeParser parser;
  std::string again;
  for (size_t at = 0; at < input.size() && !has_failed; at += chunk) {
    parser.Feed(input.substr(at, chunk));
    while (true) {
      const auto next = parser.Next();
      has_failed = !next.has_value();
      if (has_failed || !next->has_value()) {
        break;
      }
      space::agent::AppendEnvelope((*next)->flags, (*next)->payload, again);
    }
  }
  return again;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  bool whole_failed = false;
  bool bytes_failed = false;
  const std::string whole = Parse(input, input.size() + 1, whole_failed);
  const std::string bytes = Parse(input, 1, bytes_failed);
  if (whole != bytes || whole_failed != bytes_failed || !input.starts_with(whole)) {
    std::abort();
  }
  return 0;
}
