// A daemon for tests: the API routes that the command line calls and a scripted agent behind them,
// on a thread and port of its own. Sandboxes are entries of a list; files are a map.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "http/server.h"

namespace space::cli {

class FakeDaemon {
 public:
  FakeDaemon();
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;
  FakeDaemon(FakeDaemon&&) = delete;
  FakeDaemon& operator=(FakeDaemon&&) = delete;

  uint16_t port() const { return port_; }
  static constexpr const char* kKey = "e2b_00ff";

  // Copies, since the server's thread writes them.
  std::vector<std::string> requests() const;  // "POST /v2/sandboxes {...}"
  std::map<std::string, std::string> files() const;
  void PutFile(const std::string& path, std::string content);
  size_t live() const;

 private:
  http::asio::awaitable<void> Serve(http::Exchange& exchange);
  http::asio::awaitable<void> ServeApi(http::Exchange& exchange, std::string body);
  // Pause, resume, fork, snapshots, pool: nullopt for all else.
  std::optional<std::pair<int, std::string>> AnswerBranch(const std::string& method,
                                                          const std::string& target);
  http::asio::awaitable<void> ServeProcess(http::Exchange& exchange, std::string body);
  http::asio::awaitable<void> Run(http::Exchange& exchange, std::string command,
                                  std::string argument);
  http::asio::awaitable<void> ServeFiles(http::Exchange& exchange, std::string body);

  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::map<std::string, std::string> files_;
  size_t live_ = 0;
  bool is_paused_ = false;
  std::string input_;
  bool is_input_closed_ = false;
  int signal_ = 0;
  http::asio::io_context io_;
  uint16_t port_ = 0;
  std::unique_ptr<http::Server> server_;
  std::thread thread_;
};

}  // namespace space::cli
