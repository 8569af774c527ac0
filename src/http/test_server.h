// For tests of this folder: a server on loopback with its own thread, and a blocking raw client.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <gtest/gtest.h>

#include "base/fd.h"
#include "http/server.h"

namespace space::http {

inline uint16_t PortOf(int listener) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  EXPECT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size), 0);
  return ntohs(address.sin_port);
}

class TestServer {
 public:
  explicit TestServer(Handler handler, ServerLimits limits = {}) {
    auto listener = ListenTcp("127.0.0.1:0");
    EXPECT_TRUE(listener.has_value());
    port_ = PortOf(listener->get());
    server_ = std::make_unique<Server>(io_.get_executor(), std::move(handler), limits);
    EXPECT_TRUE(server_->Serve(std::move(*listener)).has_value());
    thread_ = std::thread([this] { io_.run(); });
  }
  ~TestServer() {
    asio::post(io_, [this] { server_.reset(); });
    work_.reset();
    thread_.join();
  }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;
  TestServer(TestServer&&) = delete;
  TestServer& operator=(TestServer&&) = delete;

  uint16_t port() const { return port_; }
  asio::io_context& io() { return io_; }
  Server& server() { return *server_; }
  // Runs a coroutine on the server's thread and waits for its value.
  template <class T>
  T Run(asio::awaitable<T> work) {
    return asio::co_spawn(io_, std::move(work), asio::use_future).get();
  }

 private:
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<Server> server_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// Blocking socket; every read gives up after ten seconds.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit{10, 0};
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    EXPECT_EQ(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  int fd() const { return fd_.get(); }
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        return false;
      }
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  void EndSending() { ::shutdown(fd_.get(), SHUT_WR); }
  // Reads until `text` holds `end`; everything so far.
  std::string ReadUntil(std::string_view end) {
    while (seen_.find(end) == std::string::npos && ReadMore()) {
    }
    const size_t at = seen_.find(end);
    const size_t size = at == std::string::npos ? seen_.size() : at + end.size();
    std::string taken = seen_.substr(0, size);
    seen_.erase(0, size);
    return taken;
  }
  std::string ReadAll() {
    while (ReadMore()) {
    }
    return std::exchange(seen_, {});
  }
  // errno of the read that ended ReadAll; 0 for an orderly end.
  int end_errno() const { return end_errno_; }

 private:
  bool ReadMore() {
    char buffer[65536];
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (count <= 0) {
      end_errno_ = count < 0 ? errno : 0;
      return false;
    }
    seen_.append(buffer, static_cast<size_t>(count));
    return true;
  }
  UniqueFd fd_;
  std::string seen_;
  int end_errno_ = 0;
};

}  // namespace space::http
