// Creation, step by step. A step that fails leaves what it made to Create, which undoes all of it.
#include <signal.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "catalog/json.h"
#include "http/client.h"
#include "http/spawn.h"
#include "node/images.h"
#include "node/node.h"
#include "node/time_text.h"
#include "wire/hello.h"
#include "wire/ports.h"

namespace space {
namespace {

// Building a machine takes milliseconds; on an emulated host that is busy, seconds.
constexpr int kStartLimitMs = 60'000;
constexpr int kInitLimitMs = 60'000;
constexpr size_t kInitAnswerBytes = 64 * 1024;
// Told to clients when the agent's own version is not a plain one (E2B.md 3.9).
constexpr std::string_view kEnvdVersion = "0.6.13";
constexpr std::string_view kDefaultUser = "user";
constexpr std::string_view kDefaultWorkdir = "/home/user";

bool IsPlainVersion(std::string_view version) {
  return std::count(version.begin(), version.end(), '.') == 2 && version.size() <= 32 &&
         version.find_first_not_of("0123456789.") == std::string_view::npos &&
         version.front() != '.' && version.back() != '.';
}

// The guest's own text goes to clients and logs: printable ASCII only.
std::string Printable(std::string text) {
  std::erase_if(text, [](char letter) { return letter < ' ' || letter > '~'; });
  return text;
}

std::string InitBody(const SandboxRecord& record, const TextMap& environment) {
  json::object variables;
  variables["E2B_SANDBOX"] = "true";
  variables["E2B_SANDBOX_ID"] = record.id;
  variables["E2B_TEMPLATE_ID"] = record.template_id;
  for (const auto& [name, value] : environment) {
    variables[name] = value;
  }
  json::object body;
  body["envVars"] = std::move(variables);
  if (!record.envd_token.empty()) {
    body["accessToken"] = record.envd_token;
  }
  body["timestamp"] = FormatTime(Node::Now());
  body["defaultUser"] = kDefaultUser;
  body["defaultWorkdir"] = kDefaultWorkdir;
  return json::serialize(body);
}

// A boot keeps a CPU busy from end to end: more at once than this only make all of them slower.
unsigned BootsAtOnce() { return std::max(4U, std::thread::hardware_concurrency()); }

// Counts one creation in `booting` and wakes who waits for a turn at its end.
class BootTurn {
 public:
  BootTurn(unsigned& booting, http::Event& ended) : booting_(booting), ended_(ended) { ++booting_; }
  BootTurn(const BootTurn&) = delete;
  BootTurn& operator=(const BootTurn&) = delete;
  BootTurn(BootTurn&&) = delete;
  BootTurn& operator=(BootTurn&&) = delete;
  ~BootTurn() {
    --booting_;
    ended_.Notify();
  }

 private:
  unsigned& booting_;
  http::Event& ended_;
};

}  // namespace

Result<SandboxRecord> Node::MakeRecord(const CreateSpec& spec, std::string& base_image) {
  SPACE_TRY(const TemplateReference reference, ParseTemplateReference(spec.template_reference), "");
  SPACE_TRY(const std::optional<Template> found, catalog_.templates().Find(reference.name), "");
  if (!found) {
    return Fail(ErrorCode::kNotFound, "template '" + reference.name + "' not found");
  }
  if (!reference.tag.empty() && reference.tag != "default") {
    return Fail(ErrorCode::kNotFound,
                "tag '" + reference.tag + "' does not exist for template '" + reference.name + "'");
  }
  base_image = found->image_path;
  SPACE_TRY(HostUse use, ReadHostUse(config_.data_dir), "");
  SPACE_TRY(const SandboxSize size,
            ChooseSize(spec.size, reference.size,
                       {found->vcpus, found->memory_mib, found->disk_mib}, use.memory_bytes),
            "");
  use.sandboxes = live_.size();
  for (const auto& [id, sandbox] : live_) {
    use.sandbox_memory_bytes += MiB(sandbox->record.memory_mib);
  }
  SPACE_TRY_VOID(CheckRoom(config_, use, size), "");

  SandboxRecord record;
  record.id = "i" + RandomLowerAlnum(20);
  record.team_id = spec.team_id;
  record.template_id = found->id;
  record.alias = found->name;
  record.vcpus = size.vcpus;
  record.memory_mib = size.memory_mib;
  record.disk_mib = size.disk_mib;
  record.created_at = Now();
  record.started_at = record.created_at;
  record.end_at = record.created_at + spec.timeout_seconds * kMicrosPerSecond;
  record.timeout_seconds = spec.timeout_seconds;
  record.metadata = spec.metadata;
  record.network = spec.network;
  record.allow_internet = spec.allow_internet;
  record.envd_version = kEnvdVersion;
  record.envd_token = spec.is_secure ? RandomHex(20) : "";
  record.traffic_token = spec.is_public ? "" : RandomHex(20);
  return record;
}

// A guest that fails before it has ever answered gets one more try, under another id: nobody knows
// the first. Emulated hosts make it needed: there a guest's kernel now and then dies in its first
// seconds when many boot at once.
asio::awaitable<Result<SandboxRecord>> Node::Create(CreateSpec spec) {
  const auto guest_failed = std::make_shared<bool>(false);
  CreateSpec once_more = spec;
  auto created = co_await CreateOnce(std::move(spec), guest_failed);
  if (created || !*guest_failed) {
    co_return created;
  }
  log::Warn("create_tried_again", {{"error", created.error().message()}});
  co_return co_await CreateOnce(std::move(once_more), guest_failed);
}

asio::awaitable<Result<SandboxRecord>> Node::CreateOnce(CreateSpec spec,
                                                        std::shared_ptr<bool> guest_failed) {
  const std::function<bool()> has_room = [this] { return booting_ < BootsAtOnce(); };
  if (!co_await WaitUntil(boot_ended_, has_room, config_.hello_timeout)) {
    co_return Fail(ErrorCode::kExhausted, "create sandbox: too many others are booting");
  }
  const BootTurn turn(booting_, boot_ended_);
  std::string base_image;
  SPACE_CO_TRY(SandboxRecord fresh, MakeRecord(spec, base_image), "");
  auto sandbox = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(fresh));
  SandboxRecord& record = sandbox->record;
  SPACE_CO_TRY_VOID(catalog_.sandboxes().Insert(record), "create sandbox");
  live_[record.id] = sandbox;

  auto booted = co_await Boot(sandbox, std::move(base_image), std::move(spec.environment));
  if (booted && !sandbox->process_ended && !sandbox->end_reason) {
    record.started_at = Now();
    record.ready_us = record.started_at - record.created_at;
    record.end_at = record.started_at + record.timeout_seconds * kMicrosPerSecond;
    booted = catalog_.sandboxes().Move(record, SandboxState::kRunning);
  } else if (booted) {
    booted = Fail(ErrorCode::kUnavailable, "sandbox ended while it was created");
  }
  if (!booted) {
    sandbox->Signal(SIGKILL);
    const std::function<bool()> is_over = [&] {
      return sandbox->process_ended || !sandbox->has_process();
    };
    co_await WaitUntil(sandbox->changed, is_over, std::chrono::seconds(10));
    *guest_failed = !sandbox->end_reason && booted.error().code() == ErrorCode::kUnavailable;
    record.death_reason = sandbox->end_reason.value_or("create_failed");
    record.death_detail = booted.error().message();
    Bury(sandbox);
    co_return Fail(std::move(booted).error().While("create sandbox"));
  }
  log::Info("sandbox_running", {{"sandbox_id", record.id},
                                {"template", record.template_id},
                                {"launch_us", record.launch_us},
                                {"hello_us", record.hello_us},
                                {"ready_us", record.ready_us}});
  http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
  co_return record;
}

Result<void> Node::LaunchProcess(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  std::vector<UniqueFd> descriptors;
  SPACE_TRY(UniqueFd log_file, OpenAppend(sandbox->files.vmm_log()), "open log");
  SPACE_TRY(UniqueFd kvm, OpenReadWrite(config_.kvm_path), "open KVM device");
  descriptors.push_back(std::move(log_file));
  descriptors.push_back(std::move(kvm));
  SPACE_TRY(Launched launched,
            launcher_.Launch({wire::Role::kVmm, record.id}, std::move(descriptors)), "start VMM");
  sandbox->TakeProcess(std::move(launched.pidfd));
  http::Spawn(executor_, WatchProcess(sandbox), "watch_process");
  record.vmm_pid = launched.pid;
  // It cannot have been reaped yet, so its stat is there even if it has ended.
  SPACE_TRY(record.vmm_start_ticks, ProcessStartTicks(launched.pid), "start VMM");
  record.launch_us = Now() - record.created_at;
  SPACE_TRY_VOID(catalog_.sandboxes().Update(record), "start VMM");
  SPACE_TRY(sandbox->vmm, VmmClient::Connect(executor_, launched.control_path), "start VMM");
  return {};
}

asio::awaitable<Result<void>> Node::Boot(SandboxPointer sandbox, std::string base_image,
                                         TextMap environment) {
  SPACE_CO_TRY_VOID(sandbox->files.Create(MiB(sandbox->record.disk_mib)), "make files");
  // Before the process: a missing image is the commonest mistake and needs no VMM to be seen.
  SPACE_CO_TRY(StartMessage start, MakeStart(config_, base_image, sandbox->files, sandbox->record),
               "prepare");
  SPACE_CO_TRY_VOID(LaunchProcess(sandbox), "launch");
  SPACE_CO_TRY_VOID(
      co_await sandbox->vmm->Request(std::move(start.request), std::move(start.fds), kStartLimitMs),
      "start VM");
  SPACE_CO_TRY_VOID(co_await WaitForHello(sandbox), "boot");
  SPACE_CO_TRY_VOID(co_await PostInit(sandbox, std::move(environment)), "set up agent");
  co_return Result<void>();
}

asio::awaitable<Result<void>> Node::WaitForHello(SandboxPointer sandbox) {
  const std::shared_ptr<VmmClient> vmm = sandbox->vmm;
  // The process's end closes the control socket, so this one event covers all outcomes.
  const std::function<bool()> has_news = [&] {
    return vmm->hello() || vmm->exit() || vmm->is_closed();
  };
  const bool is_in_time = co_await WaitUntil(vmm->changed(), has_news, config_.hello_timeout);
  if (!is_in_time) {
    co_return Fail(ErrorCode::kTimeout,
                   "the agent said nothing within sandbox.hello_timeout; the guest's last words: " +
                       Printable(ReadTail(sandbox->files.serial_log(), 300)));
  }
  if (!vmm->hello()) {
    std::string why = "space-vmm died";
    if (vmm->exit()) {
      why = std::string(wire::ExitReasonName(vmm->exit()->reason)) + " " + vmm->exit()->detail;
    }
    co_return Fail(
        ErrorCode::kUnavailable,
        "the VM ended before its agent answered (" + Printable(why) +
            "); the guest's last words: " + Printable(ReadTail(sandbox->files.serial_log(), 300)));
  }
  SPACE_CO_TRY(wire::Hello hello, wire::DecodeHello(vmm->hello()->hello), "read hello");
  SandboxRecord& record = sandbox->record;
  record.kernel_release = Printable(std::move(hello.kernel_release));
  record.agent_version = Printable(std::move(hello.agent_version));
  record.hello_us = Now() - record.created_at;
  if (IsPlainVersion(hello.envd_version)) {
    record.envd_version = hello.envd_version;
  }
  co_return Result<void>();
}

asio::awaitable<Result<void>> Node::PostInit(SandboxPointer sandbox, TextMap environment) {
  SPACE_CO_TRY(http::Stream stream,
               co_await sandbox->vmm->ConnectGuest(wire::kEnvdPort, kInitLimitMs), "reach agent");
  http::ClientConnection connection(std::move(stream));
  http::RequestHead head;
  head.method = "POST";
  head.target = "/init";
  head.headers = {{"Host", "envd"}, {"Content-Type", "application/json"}};
  SPACE_CO_TRY(
      const http::SimpleResponse response,
      co_await http::Call(connection, std::move(head), InitBody(sandbox->record, environment),
                          kInitAnswerBytes, kInitLimitMs),
      "post /init");
  if (response.head.status / 100 != 2) {
    co_return Fail(ErrorCode::kInternal,
                   "the agent refused its settings: " + std::to_string(response.head.status) + " " +
                       Printable(response.body.substr(0, 300)));
  }
  co_return Result<void>();
}

}  // namespace space
