// Multipart bodies: the size of the chunks must not change what comes out. The first byte chooses
// it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "agent/multipart.h"

namespace {

using namespace space;
using namespace space::agent;

struct Collected : MultipartSink {
  Result<void> OnPartBegin(const PartHead& head) override {
    text += "[" + head.name + "|" + head.filename.value_or("-") + "|";
    return {};
  }
  Result<void> OnPartData(std::string_view bytes) override {
    text += bytes;
    return {};
  }
  Result<void> OnPartEnd() override {
    text += "]";
    return {};
  }
  std::string text;
};

// What was parsed; "failed" when the body is malformed, at whatever byte that was noticed.
std::string Parse(std::string_view body, size_t chunk) {
  Collected sink;
  MultipartParser parser("b", sink);
  for (size_t at = 0; at < body.size(); at += chunk) {
    if (!parser.Feed(body.substr(at, chunk))) {
      return "failed";
    }
  }
  return parser.Finish() ? sink.text : "failed";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  // Limits count buffered bytes, so that only bodies below them must be alike.
  const std::string whole = Parse(body, body.size() + 1);
  const std::string pieces = Parse(body, size_t{data[0]} + 1);
  if (body.size() < MultipartParser::kMaxHeadBytes && whole != pieces) {
    std::abort();
  }
  (void)MultipartBoundary(body);
  return 0;
}
