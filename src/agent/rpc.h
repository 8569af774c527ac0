// Connect protocol over one HTTP exchange (E2B.md 3.2): reading requests, answering unary calls and
// writing server streams.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "agent/codec.h"
#include "agent/envelope.h"
#include "agent/wake.h"
#include "http/server.h"

namespace space::agent {

// Connect's name for an error of ours.
std::string_view ConnectCode(ErrorCode code);

// One call, with its head read. Lives in the handler's frame.
class RpcCall {
 public:
  // Answers 405 and 415 by itself: nullopt then.
  static asio::awaitable<std::optional<RpcCall>> Begin(http::Exchange& exchange);

  http::Exchange& exchange() const { return *exchange_; }
  const http::RequestHead& request() const { return exchange_->request(); }
  Codec codec() const { return type_.codec; }
  bool is_stream() const { return type_.is_stream; }
  Clock::time_point deadline() const { return deadline_; }  // max() without one
  std::chrono::seconds keepalive() const { return keepalive_; }

  // The one message of a unary or server-streaming call.
  asio::awaitable<Result<void>> ReadRequest(google::protobuf::Message& into);
  // The next message of a client stream; false at its end.
  asio::awaitable<Result<bool>> ReadNext(google::protobuf::Message& into);

  // The whole answer, as unary or as a stream of one message.
  asio::awaitable<void> Respond(const google::protobuf::Message& message);
  asio::awaitable<void> RespondError(Error error);

  // Server stream: head first, then envelopes, then End. Each returns when it is in the socket.
  asio::awaitable<Result<void>> StartStream();
  asio::awaitable<Result<void>> WriteRaw(std::string_view envelopes);
  asio::awaitable<Result<void>> WriteMessage(const google::protobuf::Message& message);
  asio::awaitable<void> EndStream(const Error* error = nullptr);

 private:
  RpcCall(http::Exchange& exchange, ContentType type) : exchange_(&exchange), type_(type) {}
  asio::awaitable<Result<std::optional<Envelope>>> ReadEnvelope();

  http::Exchange* exchange_;
  ContentType type_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::chrono::seconds keepalive_{90};
  EnvelopeParser parser_;
};

}  // namespace space::agent
