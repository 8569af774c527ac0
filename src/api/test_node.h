// For tests: a whole node on a loopback port, whose VMs are fake_vmm processes, and a client for
// it. Everything runs on the test's own thread, inside Call and the Until functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "api/api.h"
#include "http/client.h"
#include "node/local_launcher.h"

namespace space {

struct TestResponse {
  int status = 0;  // 0: no whole answer came
  http::Headers headers;
  std::string body;
  json::value Json() const { return json::parse(body); }
};

class TestNode {
 public:
  // Its own folders under the test's temporary directory, removed with it.
  TestNode();
  ~TestNode();
  TestNode(const TestNode&) = delete;
  TestNode& operator=(const TestNode&) = delete;
  TestNode(TestNode&&) = delete;
  TestNode& operator=(TestNode&&) = delete;

  // A daemon's life: after Stop the VMs run on; Start finds them again.
  void Start();
  void Stop();

  TestResponse Call(std::string method, std::string target, std::string body = "",
                    std::vector<http::Header> headers = {});
  // With the key of the team.
  TestResponse Api(std::string method, std::string target, std::string body = "");
  // To a port of the sandbox, by headers.
  TestResponse Guest(const std::string& id, int port, std::string method, std::string target,
                     std::string body = "", std::vector<http::Header> headers = {});
  // A sandbox's id; "" and a failed test when it could not be made.
  std::string Create(std::string body = R"({"templateID":"base"})");

  // Runs the node until `is_done`; false after the limit.
  bool RunUntil(const std::function<bool()>& is_done, int limit_ms = 10'000);
  void Run(asio::awaitable<void> work);

  // What exists outside of the process now.
  std::vector<std::string> Leftovers() const;
  std::string Touch(const std::string& name, size_t size);

  Config config;
  std::string folder;
  std::string key;
  uint16_t port = 0;

 private:
  struct Running {
    Running(const Config& config, Launcher& launcher);
    asio::io_context io;
    std::unique_ptr<Catalog> catalog;
    std::unique_ptr<Node> node;
    std::unique_ptr<space::Api> api;
    std::unique_ptr<http::Server> server;
  };

 public:
  std::unique_ptr<LocalLauncher> launcher;
  std::unique_ptr<Running> running;
};

}  // namespace space
