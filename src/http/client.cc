#include "http/client.h"

#include <array>
#include <charconv>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

#include "http/body_decoder.h"
#include "http/deadline.h"
#include "http/event.h"
#include "http/head_check.h"
#include "http/head_writer.h"
#include "http/read_buffer.h"

namespace space::http {
namespace {

constexpr size_t kHeadBuffer = 8 * 1024;
constexpr size_t kBodyBuffer = 64 * 1024;
constexpr int kMaxInterim = 16;  // 1xx responses before the real one

}  // namespace

struct ClientConnection::Impl {
  explicit Impl(Stream stream) : socket(std::move(stream)) {}

  Stream socket;
  ReadBuffer input;
  std::optional<BodyDecoder> body;  // of the current response, once its head has come
  BodyLength length;                // of the current request
  uint64_t sent = 0;
  bool is_head_request = false;
  bool is_request_done = true;
  bool is_answered = true;  // the final head of the last request has come
  bool keep_alive = true;
  bool is_broken = false;
  bool is_raw = false;  // after 101
};

namespace {

using State = std::shared_ptr<ClientConnection::Impl>;

// A length of zero is only spelled out where a body is usual: RFC 9110, 8.6.
bool UsuallyHasBody(const std::string& method) {
  return method == "POST" || method == "PUT" || method == "PATCH";
}

bool IsReusable(const ClientConnection::Impl& state) {
  return state.socket.is_open() && !state.is_broken && !state.is_raw && state.keep_alive &&
         state.is_request_done && state.is_answered && (!state.body || state.body->is_done()) &&
         state.input.empty();
}

asio::awaitable<Result<void>> SendParts(State state, std::array<std::string_view, 3> parts) {
  if (!state->socket.is_open() || state->is_broken) {
    co_return Fail(ErrorCode::kIo, "connection is closed");
  }
  const std::array<asio::const_buffer, 3> buffers = {asio::buffer(parts[0]), asio::buffer(parts[1]),
                                                     asio::buffer(parts[2])};
  const auto [error, count] = co_await asio::async_write(state->socket, buffers, kNoThrow);
  if (error) {
    // Reading stays possible: the server may have answered before it stopped reading.
    state->keep_alive = false;
    co_return Fail(ErrorCode::kIo, "send request: " + error.message());
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> SendHead(State state, RequestHead head,
                                       std::optional<uint64_t> content_length) {
  if (!IsReusable(*state)) {
    co_return Fail(ErrorCode::kIo, "connection cannot take another request");
  }
  BodyLength length;
  if (!content_length.has_value()) {
    length.kind = BodyLength::Kind::kChunked;
  } else if (*content_length > 0 || UsuallyHasBody(head.method)) {
    length = {BodyLength::Kind::kLength, *content_length};
  }
  SPACE_CO_TRY(const std::string text, WriteRequestHead(head, length), "send request");
  state->body.reset();
  state->length = length;
  state->sent = 0;
  state->is_head_request = head.method == "HEAD";
  state->is_answered = false;
  state->is_request_done = length.kind != BodyLength::Kind::kChunked && length.bytes == 0;
  state->keep_alive = !HasToken(head.headers, "Connection", "close");
  const std::array<std::string_view, 3> parts = {text, "", ""};
  co_return co_await SendParts(state, parts);
}

asio::awaitable<Result<void>> WriteBody(State state, std::string_view bytes) {
  if (bytes.empty()) {
    co_return Result<void>();
  }
  if (state->is_request_done) {
    co_return Fail(ErrorCode::kInternal, "request is already complete");
  }
  if (state->length.kind == BodyLength::Kind::kLength) {
    if (bytes.size() > state->length.bytes - state->sent) {
      co_return Fail(ErrorCode::kInternal, "request body is longer than announced");
    }
    state->sent += bytes.size();
    const std::array<std::string_view, 3> parts = {bytes, "", ""};
    SPACE_CO_TRY_VOID(co_await SendParts(state, parts), "write body");
    state->is_request_done = state->sent == state->length.bytes;
    co_return Result<void>();
  }
  std::array<char, 24> size_line{};
  auto* end = std::to_chars(size_line.data(), size_line.data() + 20, bytes.size(), 16).ptr;
  *end++ = '\r';
  *end++ = '\n';
  const std::array<std::string_view, 3> parts = {
      std::string_view(size_line.data(), static_cast<size_t>(end - size_line.data())), bytes,
      "\r\n"};
  co_return co_await SendParts(state, parts);
}

asio::awaitable<Result<void>> FinishBody(State state) {
  if (state->is_request_done) {
    co_return Result<void>();
  }
  if (state->length.kind == BodyLength::Kind::kLength) {
    state->is_broken = true;
    co_return Fail(ErrorCode::kInternal, "request body is shorter than announced");
  }
  const std::array<std::string_view, 3> parts = {"0\r\n\r\n", "", ""};
  SPACE_CO_TRY_VOID(co_await SendParts(state, parts), "finish request");
  state->is_request_done = true;
  co_return Result<void>();
}

// False at the end of the stream.
asio::awaitable<Result<bool>> Fill(State state, size_t wanted, size_t limit) {
  const auto room = state->input.Prepare(wanted, limit);
  if (room.empty()) {
    co_return Fail(ErrorCode::kInvalidArgument, "response has an endless line");
  }
  const auto [error, count] =
      co_await state->socket.async_read_some(asio::buffer(room.data(), room.size()), kNoThrow);
  state->input.Commit(count);
  if (error == asio::error::eof) {
    co_return false;
  }
  if (error) {
    const bool is_reset = error == asio::error::connection_reset;
    co_return Fail(ErrorCode::kIo,
                   is_reset ? "connection was reset" : "read response: " + error.message());
  }
  co_return true;
}

// One head, 1xx or final. kUnavailable when nothing came at all.
asio::awaitable<Result<CheckedResponse>> ReadOneHead(State state) {
  const HeadLimits limits;
  HeadScanner scanner(limits);
  while (true) {
    const auto length = scanner.Scan(state->input.data());
    if (!length) {
      co_return Fail(ErrorCode::kInvalidArgument, "response refused: " + length.error().reason);
    }
    if (length->has_value()) {
      const std::string_view raw = state->input.data().substr(0, **length);
      auto checked = CheckResponseHead(raw, limits);
      if (!checked) {
        co_return Fail(ErrorCode::kInvalidArgument, "response refused: " + checked.error().reason);
      }
      SPACE_CO_TRY(BodyDecoder body,
                   BodyDecoder::ForResponse(raw, *checked, state->is_head_request), "read head");
      state->body.emplace(std::move(body));
      state->input.Consume(raw.size());
      co_return std::move(*checked);
    }
    const bool is_first = state->input.empty();
    auto filled = co_await Fill(state, kHeadBuffer, limits.bytes + 1);
    if (!filled || !*filled) {
      const char* what = is_first ? "server closed the connection without an answer"
                                  : "connection ended inside the response head";
      co_return Fail(is_first ? ErrorCode::kUnavailable : ErrorCode::kIo, what);
    }
  }
}

asio::awaitable<Result<ResponseHead>> ReadFinalHead(State state) {
  for (int i = 0; i <= kMaxInterim; ++i) {
    auto checked = co_await ReadOneHead(state);
    if (!checked) {
      state->is_broken = true;
      co_return Fail(std::move(checked).error());
    }
    const int status = checked->head.status;
    if (status == 101) {
      state->is_raw = true;
    }
    if (status >= 200 || status == 101) {
      state->is_answered = true;
      const bool ends_by_close =
          !state->body->is_done() && checked->framing == Framing::kUntilClose;
      // For HEAD the missing length says nothing about the connection.
      state->keep_alive = state->keep_alive && checked->version_minor == 1 && !ends_by_close &&
                          !HasToken(checked->head.headers, "Connection", "close");
      co_return std::move(checked->head);
    }
  }
  state->is_broken = true;
  co_return Fail(ErrorCode::kInvalidArgument, "response refused: too many interim responses");
}

asio::awaitable<Result<size_t>> ReadBody(State state, std::span<char> into) {
  if (into.empty() || !state->body.has_value()) {
    co_return Fail(ErrorCode::kInternal, "no response to read from");
  }
  while (!state->body->is_done()) {
    const auto step = state->body->Decode(state->input.data(), into);
    if (!step) {
      state->is_broken = true;
      co_return Fail(step.error());
    }
    state->input.Consume(step->consumed);
    if (step->produced > 0) {
      co_return step->produced;
    }
    if (step->consumed > 0) {
      continue;
    }
    auto filled = co_await Fill(state, kBodyBuffer, kBodyBuffer);
    if (!filled) {
      state->is_broken = true;
      co_return Fail(std::move(filled).error());
    }
    if (!*filled) {
      state->keep_alive = false;
      SPACE_CO_TRY_VOID(state->body->End(), "read response body");
    }
  }
  co_return size_t{0};
}

asio::awaitable<Result<std::string>> ReadWhole(State state, size_t limit) {
  std::string body;
  std::vector<char> chunk(16 * 1024);
  while (true) {
    SPACE_CO_TRY(const size_t count, co_await ReadBody(state, chunk), "read response body");
    if (count == 0) {
      co_return body;
    }
    if (body.size() + count > limit) {
      state->is_broken = true;
      co_return Fail(ErrorCode::kExhausted,
                     "response body is larger than " + std::to_string(limit) + " bytes");
    }
    body.append(chunk.data(), count);
  }
}

asio::awaitable<Result<SimpleResponse>> CallWhole(State state, RequestHead head, std::string body,
                                                  size_t body_limit) {
  SPACE_CO_TRY_VOID(co_await SendHead(state, std::move(head), body.size()), "call");
  const auto written = co_await WriteBody(state, body);
  SimpleResponse response;
  auto answered = co_await ReadFinalHead(state);
  if (!answered) {
    co_return Fail(written ? std::move(answered).error() : written.error());
  }
  response.head = std::move(*answered);
  SPACE_CO_TRY(response.body, co_await ReadWhole(state, body_limit), "call");
  co_return response;
}

}  // namespace

ClientConnection::ClientConnection(Stream stream)
    : impl_(std::make_shared<Impl>(std::move(stream))) {}
ClientConnection::~ClientConnection() {
  if (impl_) {
    Close();
  }
}
ClientConnection::ClientConnection(ClientConnection&&) noexcept = default;
ClientConnection& ClientConnection::operator=(ClientConnection&& other) noexcept {
  if (impl_ && impl_ != other.impl_) {
    Close();
  }
  impl_ = std::move(other.impl_);
  return *this;
}

asio::awaitable<Result<void>> ClientConnection::Send(RequestHead head,
                                                     std::optional<uint64_t> content_length) {
  return SendHead(impl_, std::move(head), content_length);
}
asio::awaitable<Result<void>> ClientConnection::Write(std::string_view bytes) {
  return WriteBody(impl_, bytes);
}
asio::awaitable<Result<void>> ClientConnection::FinishRequest() { return FinishBody(impl_); }
asio::awaitable<Result<ResponseHead>> ClientConnection::ReadHead() { return ReadFinalHead(impl_); }
asio::awaitable<Result<size_t>> ClientConnection::Read(std::span<char> into) {
  return ReadBody(impl_, into);
}
asio::awaitable<Result<std::string>> ClientConnection::ReadAll(size_t limit) {
  return ReadWhole(impl_, limit);
}
bool ClientConnection::reusable() const { return IsReusable(*impl_); }
void ClientConnection::Close() {
  boost::system::error_code ignored;
  impl_->socket.close(ignored);
}
std::pair<Stream, std::string> ClientConnection::TakeStream() && {
  std::string rest = impl_->input.TakeAll();
  return {std::move(impl_->socket), std::move(rest)};
}

asio::awaitable<Result<SimpleResponse>> Call(ClientConnection& connection, RequestHead head,
                                             std::string body, size_t body_limit, int limit_ms) {
  return WithDeadline(CallWhole(connection.impl_, std::move(head), std::move(body), body_limit),
                      limit_ms);
}

}  // namespace space::http
