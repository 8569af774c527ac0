// A VM that starts from nothing: a template being built, a sandbox paused without memory, any
// sandbox where snapshots are off.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/images.h"
#include "node/node.h"
#include "wire/hello.h"

namespace space {
namespace {

// Building a machine takes milliseconds; on an emulated host that is busy, seconds.
constexpr int kStartLimitMs = 60'000;

bool IsPlainVersion(std::string_view version) {
  return std::count(version.begin(), version.end(), '.') == 2 && version.size() <= 32 &&
         version.find_first_not_of("0123456789.") == std::string_view::npos &&
         version.front() != '.' && version.back() != '.';
}

}  // namespace

Result<LayerChains> Node::BootChains(const std::string& base_image) {
  LayerChains chains;
  SPACE_TRY(LayerPointer base, layers_->Pin(base_image), "prepare");
  SPACE_TRY(LayerPointer modules, layers_->Pin(ModulesPath(config_)), "prepare");
  chains.root.push_back(std::move(base));
  chains.modules.push_back(std::move(modules));
  return chains;
}

// `below`: the frozen layers of its disks.
asio::awaitable<Result<void>> Node::Boot(SandboxPointer sandbox, LayerChains below) {
  // Before the process: a missing image is the commonest mistake and needs no VMM to be seen.
  SPACE_CO_TRY(const UniqueFd kernel, OpenImage(KernelPath(config_)), "prepare");
  SPACE_CO_TRY(const UniqueFd initramfs, OpenImage(InitramfsPath(config_)), "prepare");
  SPACE_CO_TRY_VOID(PrepareVm(sandbox), "launch");
  sandbox->chains = std::move(below);
  sandbox->chains.root.push_back(std::move(sandbox->top));
  SPACE_CO_TRY(VmmMessageWithFds start,
               MakeStart(config_, *layers_, sandbox->chains, sandbox->files, sandbox->record,
                         std::move(sandbox->top_fd)),
               "prepare");
  SPACE_CO_TRY_VOID(
      co_await sandbox->vmm->Request(std::move(start.request), std::move(start.fds), kStartLimitMs),
      "start VM");
  SPACE_CO_TRY_VOID(co_await WaitForHello(sandbox), "boot");
  SPACE_CO_TRY_VOID(co_await PostInit(sandbox->vmm, sandbox->record, InitKind::kBooted),
                    "set up agent");
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
  record.hello_us = Now() - sandbox->asked_at;
  if (IsPlainVersion(hello.envd_version)) {
    record.envd_version = hello.envd_version;
  }
  co_return Result<void>();
}

}  // namespace space
