// The one operation behind template, pause, kept snapshot and branch: a VM's memory and disk become
// frozen layers. Whoever ordered it commits it to the catalog; before that it does not exist.
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "catalog/json.h"
#include "http/spawn.h"
#include "node/blocking.h"
#include "node/node.h"
#include "node/snapshot_room.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int kSnapshotLimitMs = 600'000;
// Deeper chains cost a look-up per layer; then all above the first is written again.
constexpr size_t kMaxMemoryLayers = 8;

// How many bottom layers the next one can stand on: a file cannot stand on memory, and nothing on
// what cannot be handed to another VM.
uint32_t KeptLayers(const std::vector<LayerPointer>& memory, bool is_in_memory) {
  uint32_t kept = 0;
  while (kept < memory.size() && memory[kept]->can_be_opened() &&
         (is_in_memory || memory[kept]->record.storage == LayerStorage::kFile)) {
    ++kept;
  }
  return kept >= kMaxMemoryLayers ? 1 : kept;
}

std::string Measures(const wire::SnapshotReply& reply, Micros total) {
  json::object object;
  object["pauseUs"] = reply.pause_us;
  object["parkUs"] = reply.park_us;
  object["scanUs"] = reply.scan_us;
  object["markUs"] = reply.mark_us;
  object["forkUs"] = reply.fork_us;
  object["resumeUs"] = reply.resume_us;
  object["writeUs"] = reply.write_us;
  object["totalUs"] = total;
  object["dirtyPages"] = reply.dirty_pages;
  object["writtenPages"] = reply.written_pages;
  object["mappings"] = reply.mappings;
  return json::serialize(object);
}

SnapshotRecord RecordOf(const SandboxRecord& source, Micros now) {
  SnapshotRecord record;
  record.id = RandomHex(16);
  record.team_id = source.team_id;
  record.template_id = source.template_id;
  record.source_id = source.id;
  record.base_template_id = source.template_id;
  record.vcpus = source.vcpus;
  record.memory_mib = source.memory_mib;
  record.disk_mib = source.disk_mib;
  record.environment = source.environment;
  record.envd_version = source.envd_version;
  record.agent_version = source.agent_version;
  record.kernel_release = source.kernel_release;
  record.created_at = now;
  return record;
}

// How much memory may be written without the host running short.
Result<uint64_t> RoomFor(const Config& config, bool is_in_memory) {
  SPACE_TRY(const HostUse use, ReadHostUse(config.data_dir), "snapshot");
  const uint64_t has = is_in_memory ? use.available_memory_bytes : use.free_disk_bytes;
  const uint64_t keeps = is_in_memory ? config.min_free_memory_bytes : config.min_free_disk_bytes;
  if (has <= keeps) {
    return Fail(ErrorCode::kExhausted,
                std::string(is_in_memory ? "host is short of memory: " : "no disk space: ") +
                    FormatSize(has) + " available, " +
                    (is_in_memory ? "limits.min_free_memory" : "limits.min_free_disk") + " is " +
                    FormatSize(keeps));
  }
  return has - keeps;
}

}  // namespace

Result<void> Node::BeginSnapshot(const SandboxPointer& sandbox, const SnapshotOrder& order,
                                 const LayerPointer& top) {
  if (!sandbox->is_stored) {
    return {};
  }
  SandboxRecord& record = sandbox->record;
  SPACE_TRY(Transaction transaction, catalog_.Begin(Durability::kFast), "snapshot");
  SPACE_TRY_VOID(catalog_.layers().Insert(top->record), "snapshot");
  record.next_top = top->record.id;
  const SandboxState before = record.state;
  auto moved = before == order.during ? catalog_.sandboxes().Update(record)
                                      : catalog_.sandboxes().Move(record, order.during);
  if (moved) {
    moved = transaction.Commit();
  }
  if (!moved) {
    record.state = before;
    record.next_top.clear();
    return moved;
  }
  sandbox->changed.Notify();
  return {};
}

// The names of files that were made are on the disk.
asio::awaitable<Result<void>> Node::SyncLayers() {
  // Named: GCC 12 destroys a closure twice that is a temporary in an awaited call.
  auto work = [layers = layers_]() -> Result<void> { return layers->SyncNames(); };
  co_return co_await RunBlocking(disk_work_, std::move(work));
}

Result<void> Node::StoreAfterSnapshot(const SandboxPointer& sandbox, SandboxState to) {
  SandboxRecord& record = sandbox->record;
  record.next_top.clear();
  SPACE_TRY_VOID(catalog_.sandboxes().Move(record, to), "");
  const LayerUser user{LayerUser::Kind::kSandbox, record.id};
  if (to == SandboxState::kPaused) {
    return catalog_.layers().Forget(user);  // the pause's snapshot uses them now
  }
  SPACE_TRY_VOID(layers_->Store(user, record.team_id, sandbox->chains), "");
  for (const LayerPointer& layer : sandbox->chains.root) {
    if (layer->record.is_frozen) {
      SPACE_TRY_VOID(catalog_.layers().Freeze(layer->record.id, layer->record.file_bytes), "");
    }
  }
  return {};
}

asio::awaitable<Result<ImagePointer>> Node::TakeSnapshot(SandboxPointer sandbox,
                                                         SnapshotOrder order) {
  const Micros start = Now();
  SandboxRecord& source = sandbox->record;
  LayerChains& chains = sandbox->chains;
  const LayerStorage storage = order.is_in_memory ? LayerStorage::kMemory : LayerStorage::kFile;
  wire::SnapshotRequest request;
  request.kept_memory_layers = KeptLayers(chains.memory, order.is_in_memory);
  request.is_durable = !order.is_in_memory;
  request.stays_paused = order.stays_paused;
  SPACE_CO_TRY(request.max_bytes, RoomFor(config_, order.is_in_memory), "");

  auto image = std::make_shared<MachineImage>();
  image->record = RecordOf(source, start);
  SPACE_CO_TRY(
      NewLayer top,
      layers_->Create(source.team_id, LayerKind::kDisk, LayerStorage::kFile, MiB(source.disk_mib)),
      "snapshot");
  SPACE_CO_TRY(NewLayer memory,
               layers_->Create(source.team_id, LayerKind::kMemory, storage, MiB(source.memory_mib)),
               "snapshot");
  const std::string state_path = layers_->StatePath(image->record.id);
  UniqueFd state;
  if (order.is_in_memory) {
    SPACE_CO_TRY(image->state, CreateMemfd("state"), "snapshot");
    SPACE_CO_TRY(state, image->state.Duplicate(), "snapshot");
    image->record.id.clear();
  } else {
    SPACE_CO_TRY(state, layers_->CreateFile(state_path), "snapshot");
  }
  std::vector<UniqueFd> fds;
  fds.push_back(std::move(state));
  fds.push_back(std::move(memory.fd));
  fds.push_back(std::move(top.fd));
  auto room = SnapshotRoom::Make(executor_, static_cast<pid_t>(source.vmm_pid), {});
  Result<void> begun = room ? Result<void>() : Fail(room.error());
  if (begun) {
    begun = BeginSnapshot(sandbox, order, top.layer);
  }
  if (!begun) {
    layers_->RemoveSnapshotFiles(image->record.id);
    co_return Fail(std::move(begun).error().While("snapshot"));
  }
  if (*room) {
    request.child_waits = true;
    fds.push_back((*room)->TakeGate());
    http::Spawn(executor_, SnapshotRoom::LetChildIn(*room), "snapshot_child");
  }
  auto reply = co_await sandbox->vmm->Snapshot(request, std::move(fds), kSnapshotLimitMs);
  if (*room) {
    (*room)->Close();
    room->reset();
  }
  if (sandbox->is_gone || chains.root.empty()) {  // its VM ended, and it was buried
    layers_->RemoveSnapshotFiles(image->record.id);
    co_return Fail(ErrorCode::kUnavailable, "snapshot: the VM ended");
  }

  bool is_swapped = reply.has_value();
  if (!reply && !sandbox->process_ended) {
    const auto held = layers_->IsHeldByOthers(*top.layer);
    is_swapped = held && *held;
  }
  Result<void> done;
  if (!reply) {
    done = Fail(Error(reply.error()).While("snapshot"));
  } else if (!reply->error.empty()) {
    done = Fail(ErrorCode::kInternal, "snapshot: " + reply->error);
  }
  if (is_swapped) {
    const auto frozen = layers_->Freeze(*chains.root.back());
    done = done && !frozen ? frozen : done;
    chains.root.push_back(top.layer);
  }
  if (done) {
    done = layers_->Freeze(*memory.layer);
  }
  if (!done) {
    if (!order.is_in_memory) {
      layers_->RemoveSnapshotFiles(image->record.id);
    }
    co_return Fail(std::move(done).error());
  }
  image->chains.memory.assign(chains.memory.begin(),
                              chains.memory.begin() + request.kept_memory_layers);
  image->chains.memory.push_back(memory.layer);
  image->chains.root.assign(chains.root.begin(), chains.root.end() - 1);
  image->chains.modules = chains.modules;
  image->record.measures = Measures(*reply, Now() - start);
  image->record.stored_bytes = memory.layer->record.file_bytes;
  struct stat info = {};
  if (!order.is_in_memory && ::chmod(state_path.c_str(), 0400) == 0 &&
      ::stat(state_path.c_str(), &info) == 0) {
    image->record.stored_bytes += static_cast<uint64_t>(info.st_blocks) * 512;
  }
  sandbox->Tell(log::Level::kInfo, "snapshot_taken",
                {{"source", source.id},
                 {"in_memory", order.is_in_memory ? 1 : 0},
                 {"pause_us", reply->pause_us},
                 {"dirty_pages", reply->dirty_pages},
                 {"written_pages", reply->written_pages}});
  co_await ShortenDisk(sandbox, image);
  co_return image;
}

}  // namespace space
