// Creation, step by step. A step that fails leaves what it made to Discard, which undoes all of it.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "http/spawn.h"
#include "node/node.h"
#include "node/turn.h"
#include "wire/hello.h"

namespace space {
namespace {

// Told to clients when the agent's own version is not a plain one (E2B.md 3.9).

tl::unexpected<Error> NoTag(const TemplateReference& reference) {
  return Fail(ErrorCode::kNotFound,
              "tag '" + reference.tag + "' does not exist for template '" + reference.name + "'");
}

Result<void> CheckSameSize(const AskedSize& asked, const SnapshotRecord& snapshot) {
  const auto differs = [](const std::optional<int64_t>& one, uint64_t other) {
    return one && *one != static_cast<int64_t>(other);
  };
  for (const auto& [name, is_wrong] :
       {std::pair("cpuCount", differs(asked.vcpus, snapshot.vcpus)),
        std::pair("memoryMB", differs(asked.memory_mib, snapshot.memory_mib)),
        std::pair("diskSizeMB", differs(asked.disk_mib, snapshot.disk_mib))}) {
    if (is_wrong) {
      return Fail(ErrorCode::kInvalidArgument,
                  std::string(name) + " cannot be changed: the sandbox goes on from a snapshot");
    }
  }
  return {};
}

}  // namespace

Result<Node::CreatePlan> Node::PlanCreate(const CreateSpec& spec) {
  SPACE_TRY(const TemplateReference reference, ParseTemplateReference(spec.template_reference), "");
  CreatePlan plan;
  plan.environment = spec.environment;
  if (reference.name_space.empty()) {
    SPACE_TRY(const std::optional<Template> found, catalog_.templates().Find(reference.name), "");
    if (found) {
      if (!reference.tag.empty() && reference.tag != "default") {
        return NoTag(reference);
      }
      SPACE_TRY(const HostUse use, ReadHostUse(config_.data_dir), "");
      SPACE_TRY(plan.size,
                ChooseSize(spec.size, reference.size,
                           {found->vcpus, found->memory_mib, found->disk_mib}, use.memory_bytes),
                "");
      plan.base = *found;
      plan.template_id = found->id;
      plan.alias = found->name;
      return plan;
    }
  }
  std::string name = reference.name_space.empty() ? "" : reference.name_space + "/";
  name += reference.name + (reference.tag.empty() ? "" : ":" + reference.tag);
  SPACE_TRY(plan.snapshot, FindSnapshot(spec.team_id, name), "");
  SPACE_TRY_VOID(CheckSameSize(spec.size, *plan.snapshot), "");
  SPACE_TRY_VOID(CheckSameSize(reference.size, *plan.snapshot), "");
  plan.template_id = plan.snapshot->template_id;
  plan.alias = plan.snapshot->name.empty() ? "" : PublicSnapshotName(*plan.snapshot);
  plan.size = {plan.snapshot->vcpus, plan.snapshot->memory_mib, plan.snapshot->disk_mib};
  plan.environment = plan.snapshot->environment;
  for (const auto& [variable, value] : spec.environment) {
    plan.environment[variable] = value;
  }
  return plan;
}

SandboxRecord Node::MakeRecord(const CreateSpec& spec, const CreatePlan& plan) {
  SandboxRecord record;
  record.id = "i" + RandomLowerAlnum(20);
  record.team_id = spec.team_id;
  record.template_id = plan.template_id;
  record.alias = plan.alias;
  record.vcpus = plan.size.vcpus;
  record.memory_mib = plan.size.memory_mib;
  record.disk_mib = plan.size.disk_mib;
  record.created_at = Now();
  record.started_at = record.created_at;
  record.end_at = record.created_at + spec.timeout_seconds * kMicrosPerSecond;
  record.timeout_seconds = spec.timeout_seconds;
  record.metadata = spec.metadata;
  record.network = spec.network;
  record.allow_internet = spec.allow_internet;
  record.envd_version = wire::kEnvdVersion;
  record.envd_token = spec.is_secure ? RandomHex(20) : "";
  record.traffic_token = spec.is_public ? "" : RandomHex(20);
  record.environment = plan.environment;
  record.auto_pause = spec.auto_pause;
  record.auto_pause_keeps_memory = spec.auto_pause_keeps_memory;
  record.auto_resume = spec.auto_resume;
  record.source_id = plan.snapshot ? plan.snapshot->id : "";
  record.origin = plan.snapshot || config_.use_snapshots ? "restored" : "booted";
  return record;
}

// A guest that fails before it has ever answered gets one more try, under another id: nobody knows
// the first. Emulated hosts make it needed: there a guest's kernel now and then dies in its first
// seconds when many boot at once.
asio::awaitable<Result<SandboxRecord>> Node::Create(CreateSpec spec) {
  const Turn turn(creating_, kRestoreTurn);
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
  SPACE_CO_TRY(const CreatePlan plan, PlanCreate(spec), "");
  SPACE_CO_TRY_VOID(CheckRoomFor(plan.size, spec.team_id), "");
  SandboxRecord record = MakeRecord(spec, plan);
  VariantPointer variant;
  ImagePointer image;
  if (plan.snapshot) {
    SPACE_CO_TRY(image, LoadImage(*plan.snapshot), "");
  } else if (config_.use_snapshots) {
    SPACE_CO_TRY(variant, FindVariant(plan.base, plan.size), "");
    if (const SandboxPointer pooled = TakePooled(variant)) {
      record.id = pooled->record.id;
      record.vmm_pid = pooled->record.vmm_pid;
      record.vmm_start_ticks = pooled->record.vmm_start_ticks;
      record.kernel_release = pooled->record.kernel_release;
      record.agent_version = pooled->record.agent_version;
      record.envd_version = pooled->record.envd_version;
      record.origin = "pooled";
      pooled->record = record;
      pooled->chains.root.back()->record.team_id = record.team_id;
      auto answered = co_await Identify(pooled, InitKind::kPooled);
      auto finished = co_await FinishCreate(pooled, std::move(answered), guest_failed);
      if (finished) {
        ++variant->pooled;
        co_return finished;
      }
      log::Warn("pooled_vm_failed",
                {{"sandbox_id", record.id}, {"error", finished.error().message()}});
      *guest_failed = false;
      record = MakeRecord(spec, plan);
    }
    SPACE_CO_TRY(image, co_await EnsureImage(variant), "");
  }
  auto sandbox = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(record));
  sandbox->is_in_hands = true;
  live_[sandbox->record.id] = sandbox;
  Result<void> started;
  if (image == nullptr) {
    started = co_await BootOnce(sandbox, plan.base.image_path);
  } else {
    started = co_await StartFrom(sandbox, image, InitKind::kRestored);
    if (variant != nullptr && image->is_refused) {
      // A template that cannot be restored is built anew by the next try.
      ForgetVariant(variant);
      *guest_failed = true;
    }
  }
  if (started && variant != nullptr) {
    ++variant->on_demand;
  }
  co_return co_await FinishCreate(sandbox, std::move(started), guest_failed);
}

asio::awaitable<Result<void>> Node::BootOnce(SandboxPointer sandbox, std::string base_image) {
  SPACE_CO_TRY_VOID(co_await WaitToStart(sandbox, starting_), "");
  const Turn turn(starting_, kBootTurn);
  SPACE_CO_TRY(LayerChains chains, BootChains(base_image), "");
  co_return co_await Boot(sandbox, std::move(chains));
}

Result<void> Node::Publish(const SandboxPointer& sandbox) {
  SandboxRecord& record = sandbox->record;
  record.state = SandboxState::kRunning;
  const auto store = [&]() -> Result<void> {
    SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kFast), "");
    SPACE_TRY_VOID(catalog_.sandboxes().Insert(record), "");
    SPACE_TRY_VOID(
        layers_->Store({LayerUser::Kind::kSandbox, record.id}, record.team_id, sandbox->chains),
        "");
    return transaction.Commit();
  };
  auto stored = store();
  if (!stored) {
    record.state = SandboxState::kCreating;
    return stored;
  }
  sandbox->is_stored = true;
  sandbox->is_in_hands = false;
  http::Spawn(executor_, WatchClock(sandbox), "watch_clock");
  return {};
}

asio::awaitable<Result<SandboxRecord>> Node::FinishCreate(SandboxPointer sandbox,
                                                          Result<void> started,
                                                          std::shared_ptr<bool> guest_failed) {
  SandboxRecord& record = sandbox->record;
  if (started && !sandbox->process_ended && !sandbox->end_reason) {
    record.started_at = Now();
    record.ready_us = record.started_at - record.created_at;
    record.end_at = record.started_at + record.timeout_seconds * kMicrosPerSecond;
    started = Publish(sandbox);
  } else if (started) {
    started = Fail(ErrorCode::kUnavailable, "sandbox ended while it was created");
  }
  if (!started) {
    Error error = std::move(started).error();
    *guest_failed =
        *guest_failed || (!sandbox->end_reason && error.code() == ErrorCode::kUnavailable);
    co_await Discard(sandbox, error);
    co_return Fail(std::move(error));
  }
  sandbox->Tell(log::Level::kInfo, "sandbox_running",
                {{"sandbox_id", record.id},
                 {"template", record.template_id},
                 {"launch_us", record.launch_us},
                 {"hello_us", record.hello_us},
                 {"ready_us", record.ready_us}});
  co_return record;
}

asio::awaitable<void> Node::Discard(SandboxPointer sandbox, Error why) {
  sandbox->Signal(SIGKILL);
  const std::function<bool()> is_over = [sandbox] {
    return sandbox->process_ended || !sandbox->has_process();
  };
  co_await WaitUntil(sandbox->changed, is_over, std::chrono::seconds(10));
  sandbox->record.death_reason = sandbox->end_reason.value_or("create_failed");
  sandbox->record.death_detail = why.message();
  Bury(sandbox);
}

}  // namespace space
