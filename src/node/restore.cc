// A VM that goes on from a snapshot: its process is made, its machine restored, then it is told who
// it is.
#include <utility>

#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int kRestoreLimitMs = 60'000;
constexpr int kResumeLimitMs = 30'000;

}  // namespace

Result<void> Node::LaunchProcess(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  std::vector<UniqueFd> descriptors;
  SPACE_TRY(UniqueFd log_file, OpenAppend(sandbox->files.vmm_log()), "open log");
  SPACE_TRY(UniqueFd kvm, OpenReadWrite(config_.kvm_path), "open KVM device");
  descriptors.push_back(std::move(log_file));
  descriptors.push_back(std::move(kvm));
  SPACE_TRY(Launched launched,
            launcher_.Launch({wire::Role::kVmm, record.id}, std::move(descriptors)), "start VMM");
  sandbox->process_ended = false;
  sandbox->process_status.clear();
  sandbox->TakeProcess(std::move(launched.pidfd));
  http::Spawn(executor_, WatchProcess(sandbox), "watch_process");
  record.vmm_pid = launched.pid;
  // It cannot have been reaped yet, so its stat is there even if it has ended.
  SPACE_TRY(record.vmm_start_ticks, ProcessStartTicks(launched.pid), "start VMM");
  record.launch_us = Now() - sandbox->asked_at;
  SPACE_TRY_VOID(sandbox->files.WriteProcess(record.vmm_pid, record.vmm_start_ticks), "start VMM");
  SPACE_TRY(sandbox->vmm, VmmClient::Connect(executor_, launched.control_path), "start VMM");
  return {};
}

Result<void> Node::PrepareVm(const SandboxPointer& sandbox) {
  SPACE_TRY_VOID(sandbox->files.Renew(), "make files");
  SPACE_TRY(NewLayer top,
            layers_->Create(sandbox->record.team_id, LayerKind::kDisk, LayerStorage::kFile,
                            MiB(sandbox->record.disk_mib)),
            "make disk");
  sandbox->top = std::move(top.layer);
  sandbox->top_fd = std::move(top.fd);
  return LaunchProcess(sandbox);
}

asio::awaitable<Result<void>> Node::RestoreVm(SandboxPointer sandbox, ImagePointer image) {
  SPACE_CO_TRY(VmmMessageWithFds restore,
               MakeRestore(config_, *layers_, *image, sandbox->files, std::move(sandbox->top_fd)),
               "prepare");
  SPACE_CO_TRY_VOID(co_await sandbox->vmm->Request(std::move(restore.request),
                                                   std::move(restore.fds), kRestoreLimitMs),
                    "restore VM");
  sandbox->chains = image->chains;
  sandbox->chains.root.push_back(std::move(sandbox->top));
  SandboxRecord& record = sandbox->record;
  record.kernel_release = image->record.kernel_release;
  record.agent_version = image->record.agent_version;
  record.envd_version = image->record.envd_version;
  record.hello_us = Now() - sandbox->asked_at;
  co_return Result<void>();
}

asio::awaitable<Result<void>> Node::Identify(SandboxPointer sandbox, InitKind kind) {
  SPACE_CO_TRY_VOID(co_await sandbox->vmm->Request(wire::ResumeRequest{}, {}, kResumeLimitMs),
                    "resume VM");
  SPACE_CO_TRY_VOID(co_await PostInit(sandbox->vmm, sandbox->record, kind), "make it unique");
  co_return Result<void>();
}

Result<ImagePointer> Node::LoadImage(const SnapshotRecord& record) {
  auto image = std::make_shared<MachineImage>();
  image->record = record;
  SPACE_TRY(image->chains, layers_->Load({LayerUser::Kind::kSnapshot, record.id}),
            "snapshot " + record.id);
  if (image->chains.root.empty() || image->chains.modules.empty()) {
    return Fail(ErrorCode::kInternal, "snapshot has no disk layers", record.id);
  }
  for (const auto* chain : {&image->chains.memory, &image->chains.root, &image->chains.modules}) {
    for (const LayerPointer& layer : *chain) {
      SPACE_TRY([[maybe_unused]] const UniqueFd fd, layers_->Open(*layer), "snapshot " + record.id);
    }
  }
  if (record.has_memory) {
    SPACE_TRY([[maybe_unused]] const UniqueFd state, OpenReadOnly(layers_->StatePath(record.id)),
              "snapshot " + record.id);
  }
  return image;
}

}  // namespace space
