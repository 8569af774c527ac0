#include "api/test_node.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/units.h"
#include "http/deadline.h"
#include "http/spawn.h"

namespace space {
namespace {

constexpr int kCallLimitMs = 20'000;

asio::awaitable<void> DoCall(uint16_t port, http::RequestHead head, std::string body,
                             TestResponse& response) {
  auto stream = co_await http::ConnectTcp("127.0.0.1", port, 5000);
  if (!stream) {
    response.body = stream.error().message();
    co_return;
  }
  http::ClientConnection connection(*std::move(stream));
  auto answer =
      co_await http::Call(connection, std::move(head), std::move(body), 64 << 20, kCallLimitMs);
  if (!answer) {
    response.body = answer.error().message();
    co_return;
  }
  response.status = answer->head.status;
  response.headers = std::move(answer->head.headers);
  response.body = std::move(answer->body);
}

asio::awaitable<void> Flagged(asio::awaitable<void> work, bool& is_done) {
  co_await std::move(work);
  is_done = true;
}

asio::awaitable<void> StartNode(Node& node, std::string& error) {
  const auto started = co_await node.Start();
  error = started ? "" : started.error().message();
}

}  // namespace

TestNode::Running::Running(const Config& config, Launcher& launcher)
    : catalog(Catalog::Open(config.data_dir + "/catalog.db").value()),
      node(std::make_unique<Node>(io.get_executor(), config, *catalog, launcher)),
      api(std::make_unique<space::Api>(*node, [] {})),
      server(std::make_unique<http::Server>(
          io.get_executor(), [this](http::Exchange& exchange) { return api->Handle(exchange); })) {}

TestNode::TestNode() {
  std::string name = testing::TempDir() + "nodeXXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  folder = name;
  config.data_dir = folder + "/data";
  config.run_dir = folder + "/run";
  config.images_dir = folder + "/images";
  config.kvm_path = "/dev/null";
  config.vmm_path = FAKE_VMM;
  config.min_free_disk_bytes = 0;
  config.min_free_memory_bytes = 0;
  config.kill_grace = std::chrono::milliseconds(500);
  config.hello_timeout = std::chrono::milliseconds(10'000);
  config.sandbox_disk_bytes = MiB(64);
  config.use_snapshots = false;  // tests of templates and pools turn both on
  config.pool_size = 0;
  std::filesystem::create_directories(config.data_dir);
  std::filesystem::create_directories(config.run_dir + "/vm");
  std::filesystem::create_directories(config.images_dir + "/kernel");
  for (const char* image : {"kernel/vmlinux", "initramfs.img", "base.img", "kernel/modules.img"}) {
    Touch(std::string("images/") + image, 8192);
  }
  launcher = std::make_unique<LocalLauncher>(config.run_dir + "/vm", config.vmm_path);
  Start();
  const Team team = running->catalog->keys().CreateTeam("default", 1).value();
  key = running->catalog->keys().Create(team.id, "test", Scope::kAdmin, 1).value().secret;
}

TestNode::~TestNode() {
  if (running == nullptr) {
    Start();
  }
  Run(running->node->KillAll());
  Stop();
  std::filesystem::remove_all(folder);
}

std::string TestNode::Touch(const std::string& name, size_t size) {
  const std::string path = folder + "/" + name;
  std::ofstream(path) << std::string(size, 'x');
  return path;
}

void TestNode::Start() {
  running = std::make_unique<Running>(config, *launcher);
  std::string error;
  Run(StartNode(*running->node, error));
  ASSERT_EQ(error, "");
  auto listener = http::ListenTcp("127.0.0.1:0");
  ASSERT_TRUE(listener.has_value()) << listener.error().message();
  sockaddr_in address = {};
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(listener->get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  port = ntohs(address.sin_port);
  ASSERT_TRUE(running->server->Serve(*std::move(listener)).has_value());
}

void TestNode::Stop() {
  running->server->Stop();
  running.reset();
}

void TestNode::Run(asio::awaitable<void> work) {
  bool is_done = false;
  http::Spawn(running->io.get_executor(), Flagged(std::move(work), is_done), "test");
  EXPECT_TRUE(RunUntil([&] { return is_done; }, 30'000));
}

bool TestNode::RunUntil(const std::function<bool()>& is_done, int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  running->io.restart();
  while (!is_done() && std::chrono::steady_clock::now() < deadline) {
    running->io.run_one_for(std::chrono::milliseconds(20));
  }
  return is_done();
}

TestResponse TestNode::Call(std::string method, std::string target, std::string body,
                            std::vector<http::Header> headers) {
  http::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers.Set("Host", "127.0.0.1:" + std::to_string(port));
  for (http::Header& header : headers) {
    head.headers.Set(header.name, std::move(header.value));
  }
  TestResponse response;
  Run(DoCall(port, std::move(head), std::move(body), response));
  return response;
}

TestResponse TestNode::Api(std::string method, std::string target, std::string body) {
  return Call(std::move(method), std::move(target), std::move(body), {{"X-API-KEY", key}});
}

TestResponse TestNode::Guest(const std::string& id, int guest_port, std::string method,
                             std::string target, std::string body,
                             std::vector<http::Header> headers) {
  headers.push_back({"E2b-Sandbox-Id", id});
  headers.push_back({"E2b-Sandbox-Port", std::to_string(guest_port)});
  return Call(std::move(method), std::move(target), std::move(body), std::move(headers));
}

std::string TestNode::Create(std::string body) {
  const TestResponse made = Api("POST", "/v2/sandboxes", std::move(body));
  EXPECT_EQ(made.status, 201) << made.body;
  return made.status == 201 ? std::string(made.Json().at("sandboxID").as_string()) : std::string();
}

std::vector<std::string> TestNode::Leftovers() const {
  std::vector<std::string> found;
  for (const std::string& place : {config.run_dir + "/vm", config.data_dir + "/sandboxes"}) {
    for (const auto& entry : std::filesystem::directory_iterator(place)) {
      found.push_back(entry.path().string());
    }
  }
  // Processes whose control socket would be in our folder: children of ours, zombies included.
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(entry.path() / "children");
    for (std::string pid; children >> pid;) {
      std::string stat;
      std::getline(std::ifstream("/proc/" + pid + "/stat"), stat);
      found.push_back("process " + stat.substr(0, 60));
    }
  }
  return found;
}

}  // namespace space
