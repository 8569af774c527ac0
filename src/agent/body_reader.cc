#include "agent/body_reader.h"

namespace space::agent {

Result<BodyReader> BodyReader::Create(http::Exchange& exchange) {
  BodyReader reader(exchange);
  const auto encoding = exchange.request().headers.Find("Content-Encoding").value_or("identity");
  if (http::EqualsIgnoringCase(encoding, "gzip")) {
    reader.inflater_.emplace();
    reader.plain_.resize(kChunkBytes);
  } else if (!encoding.empty() && !http::EqualsIgnoringCase(encoding, "identity")) {
    return Fail(ErrorCode::kInvalidArgument, "unsupported Content-Encoding", encoding);
  }
  return reader;
}

boost::asio::awaitable<Result<std::string_view>> BodyReader::Next() {
  while (true) {
    if (inflater_ && !pending_.empty()) {
      const auto plain = inflater_->Step(pending_, plain_);
      if (!plain) {
        co_return Fail(plain.error());
      }
      if (*plain > 0) {
        co_return std::string_view(plain_).substr(0, *plain);
      }
    }
    const auto bytes = co_await exchange_->Read(raw_);
    if (!bytes) {
      co_return Fail(bytes.error());
    }
    const std::string_view chunk = std::string_view(raw_).substr(0, *bytes);
    if (!inflater_) {
      co_return chunk;
    }
    if (chunk.empty()) {
      const auto end = inflater_->CheckEnd();
      if (!end) {
        co_return Fail(end.error());
      }
      co_return std::string_view();
    }
    pending_ = chunk;
  }
}

}  // namespace space::agent
