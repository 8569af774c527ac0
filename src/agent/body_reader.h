// A request body chunk by chunk, with its Content-Encoding undone. Memory is bounded by two chunks.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/gzip.h"
#include "http/server.h"

namespace space::agent {

class BodyReader {
 public:
  // kInvalidArgument for an encoding other than gzip and identity.
  static Result<BodyReader> Create(http::Exchange& exchange);

  // Valid until the next call; empty at the end.
  boost::asio::awaitable<Result<std::string_view>> Next();

 private:
  static constexpr size_t kChunkBytes = 64 * 1024;
  explicit BodyReader(http::Exchange& exchange) : exchange_(&exchange) {}

  http::Exchange* exchange_;
  std::optional<Inflater> inflater_;
  std::string raw_ = std::string(kChunkBytes, '\0');
  std::string plain_;
  std::string_view pending_;  // compressed bytes in raw_ that are not used up yet
};

}  // namespace space::agent
