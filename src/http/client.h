// HTTP/1.1 client over one Stream: one exchange after the other. One coroutine at a time, except
// that writing the request body and reading the response may overlap.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/message.h"
#include "http/stream.h"

namespace space::http {

struct SimpleResponse {
  ResponseHead head;
  std::string body;
};

class ClientConnection {
 public:
  explicit ClientConnection(Stream stream);
  ~ClientConnection();
  ClientConnection(ClientConnection&&) noexcept;
  ClientConnection& operator=(ClientConnection&&) noexcept;
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Sends the head. The body follows by Write and FinishRequest: chunked when no length is given.
  // With length 0 the request is complete. Host is added when missing; Expect is left out.
  asio::awaitable<Result<void>> Send(RequestHead head, std::optional<uint64_t> content_length);
  asio::awaitable<Result<void>> Write(std::string_view bytes);
  asio::awaitable<Result<void>> FinishRequest();

  // 1xx other than 101 are skipped. kUnavailable when the server closed without answering (also: an
  // idle connection that it had closed before), kInvalidArgument when the head is refused.
  asio::awaitable<Result<ResponseHead>> ReadHead();
  asio::awaitable<Result<size_t>> Read(std::span<char> into);  // 0 at the end; kIo when cut
  asio::awaitable<Result<std::string>> ReadAll(size_t limit);
  // True when another exchange may follow on this connection.
  bool reusable() const;
  void Close();
  // After a 101: the raw stream and what was read past the head.
  std::pair<Stream, std::string> TakeStream() &&;

  struct Impl;  // in client.cc

 private:
  friend asio::awaitable<Result<SimpleResponse>> Call(ClientConnection& connection,
                                                      RequestHead head, std::string body,
                                                      size_t body_limit, int limit_ms);
  std::shared_ptr<Impl> impl_;  // shared with pending operations, which may outlive this object
};

// A whole exchange with a body in memory, answered within `limit_ms`.
asio::awaitable<Result<SimpleResponse>> Call(ClientConnection& connection, RequestHead head,
                                             std::string body, size_t body_limit, int limit_ms);

}  // namespace space::http
