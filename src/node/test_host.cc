#include "node/test_host.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "base/units.h"
#include "http/client.h"
#include "wire/ports.h"

namespace space {
namespace {

asio::awaitable<Result<std::string>> CallGuest(std::shared_ptr<VmmClient> vmm, std::string method,
                                               std::string target, std::string body) {
  SPACE_CO_TRY(http::Stream stream, co_await vmm->ConnectGuest(wire::kEnvdPort, 5000), "reach");
  http::ClientConnection connection(std::move(stream));
  http::RequestHead head;
  head.method = std::move(method);
  head.target = std::move(target);
  head.headers = {{"Host", "envd"}};
  SPACE_CO_TRY(http::SimpleResponse response,
               co_await http::Call(connection, std::move(head), std::move(body), 1 << 20, 5000),
               "call");
  co_return std::move(response.body);
}

asio::awaitable<bool> EndAll(Node& node) {
  co_await node.KillAll();
  co_return true;
}

void AddEntries(std::vector<std::string>& found, const std::string& folder) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    found.push_back(entry.path().string());
  }
}

}  // namespace

TestHost::Running::Running(const Config& config, Launcher& launcher)
    : catalog(Catalog::Open(config.data_dir + "/catalog.db").value()),
      node(std::make_unique<Node>(io.get_executor(), config, *catalog, launcher)) {}

TestHost::TestHost() {
  std::string name = testing::TempDir() + "hostXXXXXX";
  EXPECT_NE(::mkdtemp(name.data()), nullptr);
  folder = name;
  config.data_dir = folder + "/data";
  config.run_dir = folder + "/run";
  config.images_dir = folder + "/images";
  config.kvm_path = "/dev/null";
  config.vmm_path = FAKE_VMM;
  config.min_free_disk_bytes = 0;
  config.min_free_memory_bytes = 0;
  config.use_snapshots = true;
  config.pool_size = 0;
  config.kill_grace = std::chrono::milliseconds(500);
  config.hello_timeout = std::chrono::milliseconds(10'000);
  config.sandbox_disk_bytes = MiB(64);
  config.sandbox_memory_bytes = MiB(80);
  std::filesystem::create_directories(config.data_dir);
  std::filesystem::create_directories(config.run_dir + "/vm");
  std::filesystem::create_directories(config.images_dir + "/kernel");
  for (const char* image : {"kernel/vmlinux", "initramfs.img", "base.img", "kernel/modules.img"}) {
    Touch(std::string("images/") + image, 8192);
  }
  launcher_ = std::make_unique<LocalLauncher>(config.run_dir + "/vm", config.vmm_path);
}

TestHost::~TestHost() {
  try {
    if (running_ == nullptr) {
      Start();
    }
    Run(EndAll(node()));
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  running_.reset();
  // Pooled VMs were killed with the node; what else is left is a test's fault and not waited for.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (::waitpid(-1, nullptr, WNOHANG) >= 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
  std::filesystem::remove_all(folder);
}

std::string TestHost::Touch(const std::string& name, size_t size) {
  const std::string path = folder + "/" + name;
  std::ofstream(path) << std::string(size, 'x');
  return path;
}

void TestHost::Start() {
  running_ = std::make_unique<Running>(config, *launcher_);
  if (team.empty()) {
    team = catalog().keys().CreateTeam("default", 1).value().id;
    other_team = catalog().keys().CreateTeam("other", 1).value().id;
  }
  const auto started = Run(node().Start());
  EXPECT_TRUE(started.has_value()) << started.error().message();
}

void TestHost::Stop() { running_.reset(); }

bool TestHost::RunUntil(const std::function<bool()>& is_done, int limit_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
  running_->io.restart();
  while (!is_done() && std::chrono::steady_clock::now() < deadline) {
    running_->io.run_one_for(std::chrono::milliseconds(20));
  }
  return is_done();
}

CreateSpec TestHost::Spec(const std::string& reference) const {
  CreateSpec spec;
  spec.team_id = team;
  spec.template_reference = reference;
  return spec;
}

std::string TestHost::Create() {
  const auto made = Run(node().Create(Spec()));
  if (!made) {
    throw std::runtime_error("create: " + made.error().message());
  }
  return made->id;
}

SandboxState TestHost::StateOf(const std::string& id) {
  return catalog().sandboxes().Find(id).value().value().state;
}

std::string TestHost::Guest(const std::string& id, const std::string& method,
                            const std::string& target, const std::string& body) {
  const auto sandbox = node().FindUsable(id);
  if (sandbox == nullptr) {
    return "error: not usable";
  }
  const auto answer = Run(CallGuest(sandbox->vmm, method, target, body));
  return answer ? *answer : "error: " + answer.error().message();
}

std::vector<std::string> TestHost::Processes() const {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream children(entry.path() / "children");
    for (std::string pid; children >> pid;) {
      found.push_back("process " + pid);
    }
  }
  return found;
}

std::vector<std::string> TestHost::LayerFiles() const {
  std::vector<std::string> found;
  AddEntries(found, config.data_dir + "/layers");
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<std::string> TestHost::Everything() const {
  std::vector<std::string> found = LayerFiles();
  AddEntries(found, config.run_dir + "/vm");
  AddEntries(found, config.data_dir + "/sandboxes");
  for (const std::string& process : Processes()) {
    found.push_back(process);
  }
  return found;
}

size_t TestHost::Descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace space
