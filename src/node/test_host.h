// For tests: a Node whose VMs are fake_vmm processes, in folders of its own. Everything runs on the
// test's thread, inside Run and RunUntil.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "http/spawn.h"
#include "node/local_launcher.h"
#include "node/node.h"

namespace space {

class TestHost {
 public:
  TestHost();  // snapshots on, no pool; change `config`, then Start
  ~TestHost();
  TestHost(const TestHost&) = delete;
  TestHost& operator=(const TestHost&) = delete;
  TestHost(TestHost&&) = delete;
  TestHost& operator=(TestHost&&) = delete;

  void Start();
  void Stop();  // as if spaced was killed: VMs run on
  Node& node() { return *running_->node; }
  Catalog& catalog() { return *running_->catalog; }

  bool RunUntil(const std::function<bool()>& is_done, int limit_ms = 10'000);
  template <class T>
  T Run(asio::awaitable<T> work) {
    auto value = std::make_shared<std::optional<T>>();
    http::Spawn(running_->io.get_executor(), Keep(std::move(work), value), "test");
    if (!RunUntil([&] { return value->has_value(); }, 30'000)) {
      throw std::runtime_error("test: coroutine does not end");
    }
    return *std::move(*value);
  }
  // Starts it; the value appears while something else runs.
  template <class T>
  std::shared_ptr<std::optional<T>> Begin(asio::awaitable<T> work) {
    auto value = std::make_shared<std::optional<T>>();
    http::Spawn(running_->io.get_executor(), Keep(std::move(work), value), "test");
    return value;
  }

  CreateSpec Spec(const std::string& reference = "base") const;
  std::string Create();  // id; throws when it fails
  SandboxState StateOf(const std::string& id);
  // To the agent of a sandbox that runs; the body of the answer, "error: ..." when there is none.
  std::string Guest(const std::string& id, const std::string& method, const std::string& target,
                    const std::string& body = "");

  // Sockets, folders, layer files and child processes that exist.
  std::vector<std::string> Everything() const;
  std::vector<std::string> Processes() const;
  std::vector<std::string> LayerFiles() const;
  static size_t Descriptors();
  std::string Touch(const std::string& name, size_t size);

  Config config;
  std::string folder;
  std::string team;
  std::string other_team;

 private:
  template <class T>
  static asio::awaitable<void> Keep(asio::awaitable<T> work,
                                    std::shared_ptr<std::optional<T>> value) {
    value->emplace(co_await std::move(work));
  }
  struct Running {
    Running(const Config& config, Launcher& launcher);
    asio::io_context io;
    std::unique_ptr<Catalog> catalog;
    std::unique_ptr<Node> node;
  };
  std::unique_ptr<LocalLauncher> launcher_;
  std::unique_ptr<Running> running_;
};

}  // namespace space
