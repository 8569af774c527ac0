#include "agent/rpc.h"

#include <charconv>

#include <google/protobuf/empty.pb.h>

#include "agent/respond.h"
#include "base/log.h"
#include "http/status.h"

namespace space::agent {
namespace {

std::optional<uint64_t> ParseNumber(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

std::string ErrorJson(const Error& error) {
  return "{\"code\":\"" + std::string(ConnectCode(error.code())) + "\",\"message\":\"" +
         log::EscapeJson(error.message()) + "\"}";
}

}  // namespace

std::string_view ConnectCode(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kConflict:
      return "already_exists";
    case ErrorCode::kExhausted:
      return "resource_exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kTimeout:
      return "deadline_exceeded";
    case ErrorCode::kUnimplemented:
      return "unimplemented";
    default:
      return "internal";
  }
}

asio::awaitable<std::optional<RpcCall>> RpcCall::Begin(http::Exchange& exchange) {
  const http::RequestHead& request = exchange.request();
  if (request.method != "POST") {
    auto head = MakeHead(exchange, 405, {});
    head.headers.Add("Allow", "POST");
    co_await exchange.Respond(std::move(head), {});
    co_return std::nullopt;
  }
  const auto type = ParseContentType(request.headers.Find("Content-Type").value_or(""));
  if (!type) {
    auto head = MakeHead(exchange, 415, {});
    head.headers.Add("Accept-Post",
                     "application/json, application/proto, application/connect+json, "
                     "application/connect+proto");
    co_await exchange.Respond(std::move(head), {});
    co_return std::nullopt;
  }
  RpcCall call(exchange, *type);
  if (const auto text = request.headers.Find("Connect-Timeout-Ms")) {
    const auto timeout_ms = ParseNumber(*text);
    if (!timeout_ms || text->size() > 10) {  // 10 digits: Connect's own limit
      co_await call.RespondError(
          Error(ErrorCode::kInvalidArgument, "invalid Connect-Timeout-Ms: " + std::string(*text)));
      co_return std::nullopt;
    }
    if (*timeout_ms > 0) {
      call.deadline_ = Clock::now() + std::chrono::milliseconds(*timeout_ms);
    }
  }
  if (const auto text = request.headers.Find("Keepalive-Ping-Interval")) {
    const auto seconds = ParseNumber(*text);
    if (seconds && *seconds >= 1 && *seconds <= 3600) {
      call.keepalive_ = std::chrono::seconds(*seconds);
    }
  }
  co_return call;
}

asio::awaitable<Result<std::optional<Envelope>>> RpcCall::ReadEnvelope() {
  std::string buffer(16 * 1024, '\0');
  while (true) {
    auto next = parser_.Next();
    if (!next || next->has_value()) {
      co_return next;
    }
    const auto bytes = co_await exchange_->Read(buffer);
    if (!bytes) {
      co_return Fail(bytes.error());
    }
    if (*bytes == 0) {
      if (parser_.is_partial()) {
        co_return Fail(ErrorCode::kInvalidArgument, "request ends inside a message");
      }
      co_return std::nullopt;
    }
    parser_.Feed(std::string_view(buffer).substr(0, *bytes));
  }
}

asio::awaitable<Result<bool>> RpcCall::ReadNext(google::protobuf::Message& into) {
  auto envelope = co_await ReadEnvelope();
  if (!envelope) {
    co_return Fail(std::move(envelope).error());
  }
  if (!envelope->has_value() || ((*envelope)->flags & Envelope::kEndOfStream) != 0) {
    co_return false;
  }
  auto decoded = Decode(type_.codec, (*envelope)->payload, into);
  if (!decoded) {
    co_return Fail(std::move(decoded).error());
  }
  co_return true;
}

asio::awaitable<Result<void>> RpcCall::ReadRequest(google::protobuf::Message& into) {
  if (type_.is_stream) {
    auto read = co_await ReadNext(into);
    if (!read) {
      co_return Fail(std::move(read).error());
    }
    if (!*read) {
      co_return Fail(ErrorCode::kInvalidArgument, "request has no message");
    }
    // The body's end must be read before the answer can watch for the client's leaving.
    google::protobuf::Empty nothing;
    auto more = co_await ReadNext(nothing);
    if (!more || *more) {
      co_return Fail(ErrorCode::kInvalidArgument, "request has more than one message");
    }
    co_return Result<void>();
  }
  auto body = co_await exchange_->ReadAll(kMaxMessageBytes);
  if (!body) {
    co_return Fail(std::move(body).error());
  }
  co_return Decode(type_.codec, *body, into);
}

asio::awaitable<void> RpcCall::Respond(const google::protobuf::Message& message) {
  if (!type_.is_stream) {
    co_await exchange_->Respond(MakeHead(*exchange_, 200, ContentTypeName(type_)),
                                Encode(type_.codec, message));
    co_return;
  }
  co_await StartStream();
  co_await WriteMessage(message);
  co_await EndStream();
}

asio::awaitable<void> RpcCall::RespondError(Error error) {
  if (!type_.is_stream) {
    co_await exchange_->Respond(
        MakeHead(*exchange_, http::StatusOf(error.code()), "application/json"), ErrorJson(error));
    co_return;
  }
  if (!exchange_->started()) {
    co_await StartStream();
  }
  co_await EndStream(&error);
}

asio::awaitable<Result<void>> RpcCall::StartStream() {
  return exchange_->Start(MakeHead(*exchange_, 200, ContentTypeName(type_)), std::nullopt);
}

asio::awaitable<Result<void>> RpcCall::WriteRaw(std::string_view envelopes) {
  return exchange_->Write(envelopes);
}

asio::awaitable<Result<void>> RpcCall::WriteMessage(const google::protobuf::Message& message) {
  std::string envelope;
  AppendEnvelope(0, Encode(type_.codec, message), envelope);
  co_return co_await exchange_->Write(envelope);
}

asio::awaitable<void> RpcCall::EndStream(const Error* error) {
  std::string envelope;
  const std::string payload = error == nullptr ? "{}" : "{\"error\":" + ErrorJson(*error) + "}";
  AppendEnvelope(Envelope::kEndOfStream, payload, envelope);
  if (co_await exchange_->Write(envelope)) {
    co_await exchange_->Finish();
  }
}

}  // namespace space::agent
