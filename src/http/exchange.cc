#include "http/exchange.h"

#include <charconv>
#include <utility>

#include "base/log.h"

namespace space::http {
namespace {

// All operations own the state: the handler may end before they do.
using State = std::shared_ptr<ExchangeState>;

asio::awaitable<Result<size_t>> ReadBody(State state, std::span<char> into) {
  Connection& connection = *state->connection;
  if (into.empty()) {
    co_return Fail(ErrorCode::kInvalidArgument, "read into an empty buffer");
  }
  if (std::exchange(state->continue_due, false) && !state->is_started &&
      connection.input().empty()) {
    const Connection::Parts parts = {"HTTP/1.1 100 Continue\r\n\r\n", "", ""};
    SPACE_CO_TRY_VOID(co_await Connection::Send(state->connection, parts), "send 100 Continue");
  }
  while (!state->body.is_done()) {
    if (state->is_ended || connection.is_closed()) {
      co_return Fail(ErrorCode::kIo, "connection is closed");
    }
    const auto step = state->body.Decode(connection.input().data(), into);
    if (!step) {
      state->keep_alive = false;
      co_return Fail(step.error());
    }
    connection.input().Consume(step->consumed);
    if (step->produced > 0) {
      co_return step->produced;
    }
    if (step->consumed > 0) {
      continue;
    }
    if (connection.input_ended()) {
      state->keep_alive = false;
      co_return Fail(ErrorCode::kIo, "connection ended inside the request body");
    }
    if (connection.input().data().size() >= Connection::kBodyBuffer) {
      state->keep_alive = false;
      co_return Fail(ErrorCode::kInvalidArgument, "chunk header or trailer is too long");
    }
    connection.StartFill(Connection::kBodyBuffer, Connection::kBodyBuffer);
    const Connection::Waiting waiting(connection);
    if (!co_await connection.WaitInput()) {
      co_return Fail(ErrorCode::kTimeout, "reading the request body was cancelled");
    }
  }
  co_return size_t{0};
}

asio::awaitable<Result<std::string>> ReadWholeBody(State state, size_t limit) {
  if (state->request.content_length > limit) {
    co_return Fail(ErrorCode::kExhausted,
                   "request body is larger than " + std::to_string(limit) + " bytes");
  }
  std::string body;
  std::string chunk(16 * 1024, '\0');
  while (true) {
    SPACE_CO_TRY(const size_t count, co_await ReadBody(state, chunk), "read request body");
    if (count == 0) {
      co_return body;
    }
    if (body.size() + count > limit) {
      co_return Fail(ErrorCode::kExhausted,
                     "request body is larger than " + std::to_string(limit) + " bytes");
    }
    body.append(chunk, 0, count);
  }
}

// Settles framing and keep-alive, and writes the head as text.
Result<std::string> BeginResponse(ExchangeState& state, const ResponseHead& head,
                                  std::optional<uint64_t> content_length) {
  if (state.is_started || state.is_ended || state.is_upgraded) {
    return Fail(ErrorCode::kInternal, "response has already been started");
  }
  const bool has_no_body = head.status < 200 || head.status == 204 || head.status == 304;
  const bool is_head = state.request.head.method == "HEAD";
  BodyLength length;
  bool keep_alive = state.keep_alive && state.request.keep_alive &&
                    !HasToken(head.headers, "Connection", "close");
  if (has_no_body) {
    length.kind = BodyLength::Kind::kNone;
  } else if (content_length.has_value()) {
    length = {BodyLength::Kind::kLength, *content_length};
  } else if (is_head) {
    length.kind = BodyLength::Kind::kNone;
  } else if (state.request.version_minor == 1) {
    length.kind = BodyLength::Kind::kChunked;
  } else {
    length.kind = BodyLength::Kind::kUntilClose;
    keep_alive = false;
  }
  // A client that still waits for "100 Continue" may or may not send its body: no telling what the
  // next bytes are.
  keep_alive = keep_alive && !state.continue_due;
  SPACE_TRY(std::string text,
            WriteResponseHead(head, length,
                              keep_alive ? ConnectionField::kLeaveOut : ConnectionField::kClose),
            "respond");
  state.keep_alive = keep_alive;
  state.length = length;
  state.is_bodiless = has_no_body || is_head;
  state.is_started = true;
  return text;
}

asio::awaitable<Result<void>> RespondWhole(State state, ResponseHead head, std::string body) {
  SPACE_CO_TRY(const std::string text, BeginResponse(*state, head, body.size()), "respond");
  state->is_finished = true;
  const Connection::Parts parts = {text, state->is_bodiless ? std::string_view() : body, ""};
  co_return co_await Connection::Send(state->connection, parts);
}

asio::awaitable<Result<void>> StartStream(State state, ResponseHead head,
                                          std::optional<uint64_t> content_length) {
  SPACE_CO_TRY(const std::string text, BeginResponse(*state, head, content_length), "respond");
  const Connection::Parts parts = {text, "", ""};
  co_return co_await Connection::Send(state->connection, parts);
}

asio::awaitable<Result<void>> WriteBody(State state, std::string_view bytes) {
  if (!state->is_started || state->is_finished || state->is_ended) {
    co_return Fail(ErrorCode::kInternal, "response is not open for writing");
  }
  if (bytes.empty()) {
    co_return Result<void>();
  }
  if (state->length.kind == BodyLength::Kind::kLength &&
      bytes.size() > state->length.bytes - state->sent) {
    state->connection->Cut();
    co_return Fail(ErrorCode::kInternal, "response is longer than announced");
  }
  state->sent += bytes.size();
  if (state->is_bodiless) {
    co_return Result<void>();
  }
  if (state->length.kind != BodyLength::Kind::kChunked) {
    const Connection::Parts parts = {bytes, "", ""};
    co_return co_await Connection::Send(state->connection, parts);
  }
  std::array<char, 24> size_line{};
  auto* end = std::to_chars(size_line.data(), size_line.data() + 20, bytes.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  const Connection::Parts parts = {
      std::string_view(size_line.data(), static_cast<size_t>(end - size_line.data())), bytes,
      "\r\n"};
  co_return co_await Connection::Send(state->connection, parts);
}

asio::awaitable<Result<void>> FinishStream(State state) {
  if (!state->is_started || state->is_finished || state->is_ended) {
    co_return Fail(ErrorCode::kInternal, "response is not open for writing");
  }
  state->is_finished = true;
  if (state->is_bodiless) {
    co_return Result<void>();
  }
  if (state->length.kind == BodyLength::Kind::kLength && state->sent != state->length.bytes) {
    state->connection->Cut();
    co_return Fail(ErrorCode::kInternal, "response is shorter than announced");
  }
  if (state->length.kind == BodyLength::Kind::kChunked) {
    const Connection::Parts parts = {"0\r\n\r\n", "", ""};
    co_return co_await Connection::Send(state->connection, parts);
  }
  co_return Result<void>();
}

// Pipelined bytes are kept for the next request. With the buffer full only the end of the exchange
// or a failed write tells more.
asio::awaitable<void> WaitForClose(State state) {
  Connection& connection = *state->connection;
  while (!state->is_ended && !connection.is_closed() && !connection.input_ended()) {
    connection.StartFill(Connection::kIdleBuffer, Connection::kBodyBuffer);
    if (!co_await connection.WaitInput()) {
      co_return;
    }
  }
}

asio::awaitable<Result<Exchange::Raw>> UpgradeStream(State state, ResponseHead head) {
  if (state->is_started || state->is_ended || !state->body.is_done()) {
    co_return Fail(ErrorCode::kInternal, "exchange cannot be upgraded any more");
  }
  SPACE_CO_TRY(const std::string text,
               WriteResponseHead(head, BodyLength(), ConnectionField::kAsGiven), "upgrade");
  state->is_started = true;
  const Connection::Parts parts = {text, "", ""};
  SPACE_CO_TRY_VOID(co_await Connection::Send(state->connection, parts), "upgrade");
  SPACE_CO_TRY(Stream stream, co_await Connection::Detach(state->connection), "upgrade");
  state->is_upgraded = true;
  state->is_finished = true;
  co_return Exchange::Raw{std::move(stream), state->connection->input().TakeAll()};
}

}  // namespace

ExchangeState::ExchangeState(std::shared_ptr<Connection> connection_in, CheckedRequest request_in,
                             BodyDecoder body_in)
    : connection(std::move(connection_in)),
      request(std::move(request_in)),
      body(std::move(body_in)),
      continue_due(request.expects_continue) {}

asio::awaitable<Result<size_t>> ServerExchange::Read(std::span<char> into) {
  return ReadBody(state_, into);
}
asio::awaitable<Result<std::string>> ServerExchange::ReadAll(size_t limit) {
  return ReadWholeBody(state_, limit);
}
asio::awaitable<Result<void>> ServerExchange::Respond(ResponseHead head, std::string body) {
  return RespondWhole(state_, std::move(head), std::move(body));
}
asio::awaitable<Result<void>> ServerExchange::Start(ResponseHead head,
                                                    std::optional<uint64_t> content_length) {
  return StartStream(state_, std::move(head), content_length);
}
asio::awaitable<Result<void>> ServerExchange::Write(std::string_view bytes) {
  return WriteBody(state_, bytes);
}
asio::awaitable<Result<void>> ServerExchange::Finish() { return FinishStream(state_); }
asio::awaitable<void> ServerExchange::WaitForPeerClose() { return WaitForClose(state_); }
asio::awaitable<Result<Exchange::Raw>> ServerExchange::Upgrade(ResponseHead head) {
  return UpgradeStream(state_, std::move(head));
}

ResponseHead JsonHead(int status) {
  return {status, Headers({{"Content-Type", "application/json; charset=utf-8"}})};
}

std::string JsonError(int status, std::string_view message) {
  return "{\"code\":" + std::to_string(status) + ",\"message\":\"" + log::EscapeJson(message) +
         "\"}";
}

}  // namespace space::http
