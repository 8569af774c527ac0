// The server's side of one request: Exchange over a Connection. The state is shared with operations
// that the handler left pending; once ended, they fail.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/body_decoder.h"
#include "http/connection.h"
#include "http/head_check.h"
#include "http/head_writer.h"
#include "http/server.h"

namespace space::http {

struct ExchangeState {
  ExchangeState(std::shared_ptr<Connection> connection_in, CheckedRequest request_in,
                BodyDecoder body_in);

  std::shared_ptr<Connection> connection;
  CheckedRequest request;
  BodyDecoder body;
  BodyLength length;  // of the response, once started
  uint64_t sent = 0;  // bytes of the response's body
  bool continue_due = false;
  bool keep_alive = true;    // another request may follow
  bool is_bodiless = false;  // HEAD, 204, 304: the body is left out
  bool is_started = false;
  bool is_finished = false;
  bool is_upgraded = false;
  bool is_ended = false;  // the handler has returned
};

class ServerExchange final : public Exchange {
 public:
  explicit ServerExchange(std::shared_ptr<ExchangeState> state) : state_(std::move(state)) {}

  const RequestHead& request() const override { return state_->request.head; }
  const std::string& peer() const override { return state_->connection->peer(); }
  asio::awaitable<Result<size_t>> Read(std::span<char> into) override;
  asio::awaitable<Result<std::string>> ReadAll(size_t limit) override;
  asio::awaitable<Result<void>> Respond(ResponseHead head, std::string body) override;
  asio::awaitable<Result<void>> Start(ResponseHead head,
                                      std::optional<uint64_t> content_length) override;
  asio::awaitable<Result<void>> Write(std::string_view bytes) override;
  asio::awaitable<Result<void>> Finish() override;
  bool started() const override { return state_->is_started; }
  void Cut() override { state_->connection->Cut(); }
  asio::awaitable<void> WaitForPeerClose() override;
  asio::awaitable<Result<Raw>> Upgrade(ResponseHead head) override;

 private:
  std::shared_ptr<ExchangeState> state_;
};

// The error body of our own answers.
ResponseHead JsonHead(int status);
std::string JsonError(int status, std::string_view message);

}  // namespace space::http
