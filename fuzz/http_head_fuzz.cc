// Heads and bodies of HTTP from clients and guests. What the strict check accepts, Beast reads
// alike or refuses; what we write of it is accepted again; a body comes out the same in one piece
// and byte by byte.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "http/body_decoder.h"
#include "http/head_check.h"
#include "http/head_writer.h"
#include "http/message.h"

namespace {

namespace beast_http = boost::beast::http;
using space::http::BodyDecoder;
using space::http::Headers;

void Require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Beast groups fields of one name, hence sorted by name.
Pairs Sorted(Pairs pairs) {
  for (auto& [name, value] : pairs) {
    for (char& c : name) {
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  return pairs;
}
Pairs OfHeaders(const Headers& headers) {
  Pairs pairs;
  for (const auto& header : headers.all()) {
    pairs.emplace_back(header.name, header.value);
  }
  return Sorted(std::move(pairs));
}
template <class Fields>
Pairs OfBeast(const Fields& fields) {
  Pairs pairs;
  for (const auto& field : fields) {
    pairs.emplace_back(std::string(field.name_string()), std::string(field.value()));
  }
  return Sorted(std::move(pairs));
}

template <bool is_request>
bool BeastAccepts(beast_http::parser<is_request, beast_http::buffer_body>& parser,
                  std::string_view raw) {
  boost::beast::error_code error;
  parser.header_limit(1 << 20);
  parser.body_limit(boost::none);
  const size_t used = parser.put(boost::asio::buffer(raw), error);
  return !error && used == raw.size() && parser.is_header_done();
}

// The body, then '|' and how it ended. A fault may be seen at once or at the end, with less of the
// body before it: one is as good as the other.
std::string DecodeAll(BodyDecoder decoder, std::string_view wire, size_t piece) {
  std::string body;
  std::string pending;
  size_t at = 0;
  char out[7];
  while (!decoder.is_done()) {
    const auto step = decoder.Decode(pending, out);
    if (!step) {
      return "failed";
    }
    body.append(out, step->produced);
    pending.erase(0, step->consumed);
    if (step->consumed + step->produced > 0) {
      continue;
    }
    if (at == wire.size()) {
      return decoder.End() ? body + "|end" : "failed";
    }
    const std::string_view more = wire.substr(at, piece);
    pending.append(more);
    at += more.size();
  }
  return body + "|done" + pending + std::string(wire.substr(at));
}

void TryRequest(std::string_view raw, std::string_view rest) {
  const auto checked = space::http::CheckRequestHead(raw);
  if (!checked) {
    return;
  }
  beast_http::request_parser<beast_http::buffer_body> parser;
  if (BeastAccepts(parser, raw)) {
    Require(parser.get().method_string() == checked->head.method);
    Require(parser.get().target() == checked->head.target);
    Require(OfBeast(parser.get().base()) == OfHeaders(checked->head.headers));
  }
  static_cast<void>(space::http::ParseTarget(checked->head.target));
  const auto written = space::http::WriteRequestHead(checked->head, {});
  Require(written.has_value());
  const auto again = space::http::CheckRequestHead(*written, {.bytes = 1 << 20});
  Require(again.has_value() && again->head.target == checked->head.target);
  auto whole = BodyDecoder::ForRequest(raw, *checked);
  if (whole) {
    auto pieces = BodyDecoder::ForRequest(raw, *checked);
    Require(DecodeAll(std::move(*whole), rest, rest.size() + 1) ==
            DecodeAll(std::move(*pieces), rest, 1));
  }
}

void TryResponse(std::string_view raw, std::string_view rest) {
  const auto checked = space::http::CheckResponseHead(raw);
  if (!checked) {
    return;
  }
  beast_http::response_parser<beast_http::buffer_body> parser;
  if (BeastAccepts(parser, raw)) {
    Require(parser.get().result_int() == static_cast<unsigned>(checked->head.status));
    Require(OfBeast(parser.get().base()) == OfHeaders(checked->head.headers));
  }
  auto whole = BodyDecoder::ForResponse(raw, *checked, false);
  if (whole) {
    auto pieces = BodyDecoder::ForResponse(raw, *checked, false);
    Require(DecodeAll(std::move(*whole), rest, rest.size() + 1) ==
            DecodeAll(std::move(*pieces), rest, 1));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static_cast<void>(space::http::ParseTarget(bytes));
  space::http::HeadScanner scanner;
  const auto length = scanner.Scan(bytes);
  // Unscanned bytes too: the check must stand alone.
  TryRequest(bytes, "");
  TryResponse(bytes, "");
  if (length && length->has_value()) {
    TryRequest(bytes.substr(0, **length), bytes.substr(**length));
    TryResponse(bytes.substr(0, **length), bytes.substr(**length));
  }
  return 0;
}
