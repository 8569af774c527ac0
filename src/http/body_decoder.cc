#include "http/body_decoder.h"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

namespace space::http {
namespace {

namespace beast_http = boost::beast::http;
using boost::beast::error_code;

// What the two kinds of parser have in common, behind one interface.
class Parser {
 public:
  Parser() = default;
  virtual ~Parser() = default;
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;
  Parser(Parser&&) = delete;
  Parser& operator=(Parser&&) = delete;
  virtual size_t Put(std::string_view in, std::span<char> out, size_t& produced,
                     error_code& error) = 0;
  virtual void PutEnd(error_code& error) = 0;
  virtual bool is_done() const = 0;
};

template <bool is_request>
class BeastParser final : public Parser {
 public:
  Result<void> PutHead(std::string_view raw_head, bool skip) {
    parser_.header_limit(static_cast<uint32_t>(raw_head.size() + 64 * 1024));
    parser_.body_limit(boost::none);
    parser_.skip(skip);
    error_code error;
    const size_t used = parser_.put(boost::asio::buffer(raw_head), error);
    if (error || used != raw_head.size() || !parser_.is_header_done()) {
      return Fail(ErrorCode::kInvalidArgument, "head refused: " + error.message());
    }
    parser_.eager(true);
    return {};
  }
  bool Agrees(Framing framing, uint64_t length) const {
    const auto beast_length = parser_.content_length();
    const bool has_length = beast_length.has_value() && *beast_length > 0;
    return parser_.chunked() == (framing == Framing::kChunked) &&
           has_length == (framing == Framing::kLength) && (!has_length || *beast_length == length);
  }
  size_t Put(std::string_view in, std::span<char> out, size_t& produced,
             error_code& error) override {
    auto& body = parser_.get().body();
    body.data = out.data();
    body.size = out.size();
    const size_t used = parser_.put(boost::asio::buffer(in), error);
    produced = out.size() - body.size;
    if (error == beast_http::error::need_buffer || error == beast_http::error::need_more) {
      error = {};
    }
    return used;
  }
  void PutEnd(error_code& error) override { parser_.put_eof(error); }
  bool is_done() const override { return parser_.is_done(); }

 private:
  beast_http::parser<is_request, beast_http::buffer_body> parser_;
};

}  // namespace

struct BodyDecoder::Impl {
  std::unique_ptr<Parser> parser;  // null: there is no body
  // Beast has left bytes of an unfinished line. Beast 1.81 asserts that it sees at least
  // "0\r\n\r\n" once it has recognised the last chunk, also when fewer bytes have come; no chunked
  // body that goes on has fewer bytes to come, so we wait for them.
  bool awaits_line = false;
};

constexpr size_t kShortestLine = 5;

BodyDecoder::BodyDecoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BodyDecoder::~BodyDecoder() = default;
BodyDecoder::BodyDecoder(BodyDecoder&&) noexcept = default;
BodyDecoder& BodyDecoder::operator=(BodyDecoder&&) noexcept = default;

Result<BodyDecoder> BodyDecoder::ForRequest(std::string_view raw_head,
                                            const CheckedRequest& checked) {
  auto parser = std::make_unique<BeastParser<true>>();
  SPACE_TRY_VOID(parser->PutHead(raw_head, false), "parse request head");
  if (!parser->Agrees(checked.framing, checked.content_length)) {
    return Fail(ErrorCode::kInvalidArgument, "the length of the request body is ambiguous");
  }
  auto impl = std::make_unique<Impl>();
  if (checked.framing != Framing::kNone) {
    impl->parser = std::move(parser);
  }
  return BodyDecoder(std::move(impl));
}

Result<BodyDecoder> BodyDecoder::ForResponse(std::string_view raw_head,
                                             const CheckedResponse& checked, bool without_body) {
  auto parser = std::make_unique<BeastParser<false>>();
  const bool skip = without_body || checked.framing == Framing::kNone;
  SPACE_TRY_VOID(parser->PutHead(raw_head, skip), "parse response head");
  auto impl = std::make_unique<Impl>();
  if (!skip) {
    if (!parser->Agrees(checked.framing, checked.content_length)) {
      return Fail(ErrorCode::kInvalidArgument, "the length of the response body is ambiguous");
    }
    impl->parser = std::move(parser);
  }
  return BodyDecoder(std::move(impl));
}

Result<BodyDecoder::Step> BodyDecoder::Decode(std::string_view in, std::span<char> out) {
  Step step;
  if (is_done() || in.empty() || (impl_->awaits_line && in.size() < kShortestLine)) {
    return step;
  }
  error_code error;
  step.consumed = impl_->parser->Put(in, out, step.produced, error);
  if (error) {
    return Fail(ErrorCode::kInvalidArgument, "body is malformed: " + error.message());
  }
  impl_->awaits_line = step.consumed < in.size() && step.produced < out.size();
  return step;
}

Result<void> BodyDecoder::End() {
  if (is_done()) {
    return {};
  }
  error_code error;
  impl_->parser->PutEnd(error);
  if (error) {
    return Fail(ErrorCode::kIo, "connection ended inside a body");
  }
  return {};
}

bool BodyDecoder::is_done() const { return !impl_->parser || impl_->parser->is_done(); }

}  // namespace space::http
