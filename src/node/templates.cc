// Variants of templates: booted, prepared and frozen once, at their first use; then kept until
// something that they were made of changes.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/images.h"
#include "node/node.h"
#include "node/turn.h"
#include "wire/hello.h"

namespace space {
namespace {

constexpr int kPagesLimitMs = 60'000;
const std::vector<std::string> kPython = {"/usr/bin/python3", "-c", "import json, os, re"};

SandboxRecord OwnRecord(const std::string& prefix, const Template& base, const SandboxSize& size,
                        Micros now) {
  SandboxRecord record;
  record.id = prefix + RandomLowerAlnum(20);
  record.template_id = base.id;
  record.vcpus = size.vcpus;
  record.memory_mib = size.memory_mib;
  record.disk_mib = size.disk_mib;
  record.created_at = now;
  record.envd_version = wire::kEnvdVersion;
  return record;
}

}  // namespace

Result<Node::VariantPointer> Node::FindVariant(const Template& base, const SandboxSize& size) {
  SPACE_TRY(const std::string fingerprint,
            VariantFingerprint(config_, base, size.vcpus, size.memory_mib, size.disk_mib), "");
  VariantPointer& variant = variants_[fingerprint];
  if (variant == nullptr) {
    const bool is_default = size.vcpus == base.vcpus && size.memory_mib == base.memory_mib &&
                            size.disk_mib == base.disk_mib;
    variant = std::make_shared<Variant>(executor_, fingerprint, base, size, is_default);
    // The same size with another fingerprint: it was made of things that are no more.
    for (const auto& [other_fingerprint, other] : variants_) {
      if (other != nullptr && other != variant && other->base.id == base.id &&
          other->size.vcpus == size.vcpus && other->size.memory_mib == size.memory_mib &&
          other->size.disk_mib == size.disk_mib) {
        other->is_old = true;
      }
    }
  }
  variant->used_at = Now();
  return variant;
}

asio::awaitable<Result<ImagePointer>> Node::EnsureImage(VariantPointer variant) {
  if (variant->is_building) {
    const std::function<bool()> is_over = [variant] { return !variant->is_building; };
    co_await WaitUntil(variant->changed, is_over, config_.hello_timeout * 3);
    if (variant->image == nullptr) {
      // Those who waited share the failure: trying again is the next one's business.
      co_return variant->build_error ? Fail(*variant->build_error)
                                     : Fail(ErrorCode::kTimeout, "template is still being built");
    }
  }
  if (variant->image != nullptr) {
    co_return variant->image;
  }
  SPACE_CO_TRY(const std::optional<SnapshotRecord> stored,
               catalog_.snapshots().FindVariant(variant->fingerprint), "find template");
  if (stored) {
    if (auto image = LoadImage(*stored)) {
      variant->image = *std::move(image);
      http::Spawn(executor_, Refill(variant), "refill");
      co_return variant->image;
    } else {
      log::Warn("template_unusable",
                {{"snapshot", stored->id}, {"error", image.error().message()}});
      RemoveSnapshot(*stored);
    }
  }
  variant->is_building = true;
  auto built = co_await Build(variant);
  variant->is_building = false;
  variant->build_error.reset();
  if (built) {
    variant->image = *built;
    http::Spawn(executor_, Refill(variant), "refill");
  } else {
    variant->build_error = built.error();
    variants_.erase(variant->fingerprint);  // those who wait hold it; the next one asks anew
  }
  variant->changed.Notify();
  co_return built;
}

asio::awaitable<Result<ImagePointer>> Node::Build(VariantPointer variant) {
  const Turn turn(starting_, kBootTurn);
  const Micros start = Now();
  log::Info("template_build", {{"template", variant->base.id},
                               {"vcpus", variant->size.vcpus},
                               {"memory_mib", variant->size.memory_mib},
                               {"step", "boot"}});
  auto builder = std::make_shared<Sandbox>(executor_, config_.data_dir,
                                           OwnRecord("t", variant->base, variant->size, start));
  builder->purpose = Sandbox::Purpose::kBuild;
  builder->is_in_hands = true;
  own_[builder->record.id] = builder;
  Result<ImagePointer> built = Fail(ErrorCode::kInternal, "template was not built");
  auto chains = BootChains(variant->base.image_path);
  Result<void> booted;
  if (chains) {
    booted = co_await Boot(builder, *std::move(chains));
  } else {
    booted = Fail(std::move(chains).error());
  }
  if (booted) {
    log::Info("template_build", {{"template", variant->base.id},
                                 {"step", "snapshot"},
                                 {"boot_ms", (Now() - start) / 1000}});
    built = co_await Freeze(builder, variant);
  } else {
    built = Fail(std::move(booted).error());
  }
  co_await Discard(builder, Error(ErrorCode::kInternal, "template is built"));
  if (built) {
    auto trained = co_await Train(*built);
    if (!trained) {  // it is only slower without
      log::Warn("template_not_trained", {{"error", trained.error().message()}});
    }
  }
  log::Info("template_build", {{"template", variant->base.id},
                               {"step", built ? "done" : "failed"},
                               {"error", built ? "" : built.error().message()},
                               {"total_ms", (Now() - start) / 1000}});
  co_return built;
}

asio::awaitable<Result<ImagePointer>> Node::Freeze(SandboxPointer builder, VariantPointer variant) {
  // A template whose image has no such program is only slower.
  for (const std::vector<std::string>& command : {WarmingCommand(), kPython}) {
    if (auto ran = co_await RunInGuest(builder->vmm, command); !ran) {
      log::Warn("template_not_warmed", {{"error", ran.error().message()}});
    }
  }
  SPACE_CO_TRY_VOID(co_await PostFreeze(builder->vmm, FreezeKind::kTemplate), "prepare template");
  SnapshotOrder order;
  order.stays_paused = true;
  SPACE_CO_TRY(ImagePointer image, co_await TakeSnapshot(builder, order), "template");
  SnapshotRecord& record = image->record;
  record.kind = SnapshotKind::kTemplate;
  record.template_id = variant->base.id;
  record.name = variant->base.name;
  record.fingerprint = variant->fingerprint;
  record.source_id.clear();
  record.used_at = record.created_at;
  SPACE_CO_TRY_VOID(co_await SyncLayers(), "template");
  SPACE_CO_TRY(Transaction transaction, catalog_.Begin(Durability::kDurable), "template");
  SPACE_CO_TRY_VOID(catalog_.snapshots().Insert(record), "template");
  SPACE_CO_TRY_VOID(layers_->Store({LayerUser::Kind::kSnapshot, record.id}, "", image->chains),
                    "template");
  SPACE_CO_TRY_VOID(transaction.Commit(), "template");
  co_return image;
}

// Restores it once to see which pages a start touches; later restores have them at once.
asio::awaitable<Result<void>> Node::Train(ImagePointer image) {
  const SandboxSize size{image->record.vcpus, image->record.memory_mib, image->record.disk_mib};
  Template base;
  base.id = image->record.template_id;
  auto trainee =
      std::make_shared<Sandbox>(executor_, config_.data_dir, OwnRecord("t", base, size, Now()));
  trainee->purpose = Sandbox::Purpose::kBuild;
  trainee->is_in_hands = true;
  own_[trainee->record.id] = trainee;
  auto trained = co_await RecordPages(trainee, image);
  if (trained) {
    image->record.has_working_set = true;
  } else {
    std::remove(layers_->WorkingSetPath(image->record.id).c_str());
  }
  co_await Discard(trainee, Error(ErrorCode::kInternal, "template is trained"));
  co_return trained;
}

asio::awaitable<Result<void>> Node::RecordPages(SandboxPointer trainee, ImagePointer image) {
  SPACE_CO_TRY_VOID(PrepareVm(trainee), "train");
  SPACE_CO_TRY_VOID(co_await RestoreVm(trainee, image), "train");
  SPACE_CO_TRY_VOID(co_await Identify(trainee, InitKind::kRestored), "train");
  SPACE_CO_TRY_VOID(co_await RunInGuest(trainee->vmm, WarmingCommand()), "train");
  SPACE_CO_TRY(UniqueFd pages, layers_->CreateFile(layers_->WorkingSetPath(image->record.id)),
               "train");
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(pages));
  SPACE_CO_TRY_VOID(
      co_await trainee->vmm->Request(wire::WorkingSetRequest{}, std::move(fds), kPagesLimitMs),
      "train");
  co_return catalog_.snapshots().SetWorkingSet(image->record.id, true);
}

void Node::RemoveSnapshot(const SnapshotRecord& record) {
  // Held until its uses are gone from the catalog; then the last of them that nobody needs go.
  const auto chains = layers_->Load({LayerUser::Kind::kSnapshot, record.id});
  const auto remove = [&]() -> Result<void> {
    SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kDurable), "");
    SPACE_TRY_VOID(catalog_.layers().Forget({LayerUser::Kind::kSnapshot, record.id}), "");
    SPACE_TRY([[maybe_unused]] const bool was_there, catalog_.snapshots().Delete(record.id), "");
    return transaction.Commit();
  };
  if (const auto removed = remove(); !removed) {
    log::Error("snapshot_not_removed",
               {{"snapshot", record.id}, {"error", removed.error().message()}});
    return;
  }
  layers_->RemoveSnapshotFiles(record.id);
  log::Info("snapshot_removed", {{"snapshot", record.id}});
}

void Node::ForgetVariant(const VariantPointer& variant) {
  Drain(variant);
  if (variant->image != nullptr) {
    RemoveSnapshot(variant->image->record);
    variant->image = nullptr;
  }
}

// Snapshots of templates whose parts have changed since. Sandboxes made from them keep their
// layers.
Result<void> Node::RemoveOldTemplates() {
  SPACE_TRY(const std::vector<SnapshotRecord> stored,
            catalog_.snapshots().OfKind(SnapshotKind::kTemplate), "clean templates");
  for (const SnapshotRecord& record : stored) {
    SPACE_TRY(const std::optional<Template> base, catalog_.templates().Find(record.template_id),
              "clean templates");
    const auto now =
        base ? VariantFingerprint(config_, *base, record.vcpus, record.memory_mib, record.disk_mib)
             : Result<std::string>("");
    if (now && *now != record.fingerprint) {
      RemoveSnapshot(record);
    }
  }
  return {};
}

// Before anybody asks: the default size of the base template, and its pool.
asio::awaitable<void> Node::WarmUp() {
  const Template base = BaseTemplate(config_, Now());
  auto variant = FindVariant(base, {base.vcpus, base.memory_mib, base.disk_mib});
  if (!variant) {
    log::Warn("no_warm_up", {{"error", variant.error().message()}});
    co_return;
  }
  auto image = co_await EnsureImage(*variant);
  if (image) {
    co_await Refill(*variant);
  }
}

}  // namespace space
