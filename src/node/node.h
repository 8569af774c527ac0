// The life cycle of sandboxes on this machine: create, kill, expire, notice death, adopt after a
// restart. Sandboxes outlive it: destroying a Node ends no VM. One io_context thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/result.h"
#include "catalog/catalog.h"
#include "http/event.h"
#include "node/agent_call.h"
#include "node/config.h"
#include "node/launcher.h"
#include "node/layer_folder.h"
#include "node/machine_image.h"
#include "node/sandbox.h"
#include "node/sandbox_size.h"

namespace space {

struct CreateSpec {
  std::string team_id;
  std::string template_reference;  // as ParseTemplateReference reads it
  AskedSize size;
  int64_t timeout_seconds = 300;
  TextMap metadata;
  TextMap environment;
  bool is_secure = true;  // envd wants a token
  bool is_public = true;  // false: the proxy wants a token for ports other than envd's
  std::string network;    // JSON, kept for info; empty: none given
  std::optional<bool> allow_internet;
  bool auto_pause = false;  // at its end it is paused instead of killed
  bool auto_pause_keeps_memory = true;
  bool auto_resume = false;  // FindOrWake resumes it
};

struct ForkSpec {
  int64_t count = 1;  // 1..100
  int64_t timeout_seconds = 15;
};
using ForkOutcome = Result<SandboxRecord>;
struct ForkReport {
  std::vector<ForkOutcome> children;  // as many as were asked for; each succeeds or fails alone
  std::string measures;               // JSON object, as in SnapshotRecord
};

struct ResumeSpec {
  int64_t timeout_seconds = 300;
  bool keeps_memory = true;      // false: the memory of the pause is dropped, the guest boots
  bool refuses_running = false;  // kConflict when it runs (E2B's old resume); else it is extended
};
struct PoolEntry {
  std::string template_id;  // "base@2c-1024m-8192d", as a client would write it
  std::string state;        // "building", "ready", "idle" (emptied, nobody used it), "draining"
  unsigned ready = 0;
  unsigned making = 0;
  unsigned low = 0;
  unsigned high = 0;
  uint64_t memory_mib = 0;  // of one VM
  uint64_t pooled = 0;      // creations served so far, by way
  uint64_t on_demand = 0;
  uint64_t booted = 0;
};
struct PoolState {
  std::vector<PoolEntry> entries;
  uint64_t memory_bytes = 0;  // that pooled VMs hold
  uint64_t memory_limit_bytes = 0;
};

struct ResumeOutcome {
  SandboxRecord record;
  bool was_running = false;  // 200 instead of 201
};

struct SandboxLogs {
  std::string serial;
  std::string vmm;
};

class Node {
 public:
  // All three outlive the node.
  Node(asio::any_io_executor executor, const Config& config, Catalog& catalog, Launcher& launcher);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  Node(Node&&) = delete;
  Node& operator=(Node&&) = delete;
  ~Node();  // ends the VMs that are nobody's sandbox

  // Registers the base template, takes over what still runs, buries what does not, removes what
  // nobody owns. Once, before anything else.
  asio::awaitable<Result<void>> Start();

  // Answers when the agent has its settings.
  //   errors: kInvalidArgument naming the field, kNotFound for the template or an image,
  //   kExhausted, kTimeout without hello, kInternal when the VM ended before; nothing is left then
  asio::awaitable<Result<SandboxRecord>> Create(CreateSpec spec);
  // Answers when process and files are gone. kNotFound when it was not there, or is being ended.
  asio::awaitable<Result<void>> Kill(std::string team_id, std::string id);
  asio::awaitable<void> KillAll();

  // The sandbox goes on while its copies start. All of them share everything below their own tops.
  //   errors: kInvalidArgument naming count, kNotFound, kConflict when it is paused or changing its
  //   state, kExhausted when not even one fits, kInternal when the snapshot failed
  asio::awaitable<Result<ForkReport>> Fork(std::string team_id, std::string id, ForkSpec spec);
  // Kept until it is deleted; a template of its own (PublicSnapshotId). `name` may be "", "name",
  // "name:tag" or "namespace/name[:tag]", the namespace being the team's name.
  //   errors: kInvalidArgument naming name, kNotFound, kConflict when it is paused or another
  //   snapshot runs; kExhausted when the disk is full: the sandbox goes on
  asio::awaitable<Result<SnapshotRecord>> Snapshot(std::string team_id, std::string id,
                                                   std::string name);
  // Answers when the snapshot is on the disk and the VM is gone. Parallel ones join; a snapshot in
  // progress is waited for. Without memory the guest is booted anew by Resume.
  //   errors: kNotFound, kConflict when it is paused already
  asio::awaitable<Result<void>> Pause(std::string team_id, std::string id, bool keep_memory);
  // Answers when the agent answers. Parallel ones join one restore. The end is now + timeout, of a
  // running one never earlier than it was.
  //   errors: kNotFound, kConflict (refuses_running; a snapshot runs), kExhausted; a restore that
  //   failed leaves it paused
  asio::awaitable<Result<ResumeOutcome>> Resume(std::string team_id, std::string id,
                                                ResumeSpec spec);

  Result<SnapshotPage> ListSnapshots(const SnapshotQuery& query);
  // The kept one that a client means by "<template id>[:tag]" or "[namespace/]name[:tag]".
  Result<SnapshotRecord> FindSnapshot(const std::string& team_id, const std::string& reference);
  // Without a tag: every snapshot of that name.
  //   errors: kNotFound; kInvalidArgument (E2B wants a 400) naming the sandboxes, running or
  //   paused, that were made from it
  asio::awaitable<Result<void>> DeleteSnapshot(std::string team_id, std::string reference);

  // The end is now + seconds. 0 ends it now.
  Result<SandboxRecord> SetTimeout(const std::string& team_id, std::string_view id,
                                   int64_t seconds);
  // The same, but never earlier than it was.
  Result<SandboxRecord> ExtendTimeout(const std::string& team_id, std::string_view id,
                                      int64_t seconds);
  // A running one of the team. kNotFound in the words of E2B.md 2.1.
  Result<SandboxRecord> FindRunning(const std::string& team_id, std::string_view id);
  // In any state, the dead included.
  Result<SandboxRecord> FindAny(const std::string& team_id, std::string_view id);
  Result<SandboxLogs> Logs(const std::string& team_id, std::string_view id);
  // One that clients see: running, paused or between the two (ShownAs). kNotFound like FindRunning.
  Result<SandboxRecord> FindShown(const std::string& team_id, std::string_view id);
  // The id of the first one that is shown to clients and for which this is true.
  std::optional<std::string> FindId(
      const std::function<bool(const SandboxRecord&)>& is_meant) const;
  // For the proxy; null unless it runs.
  std::shared_ptr<Sandbox> FindUsable(std::string_view id);
  // The record of a sandbox that is not usable but would wake (auto_resume, paused with memory).
  // Check tokens against it, then Wake.
  std::optional<SandboxRecord> FindWakeable(std::string_view id);
  // Resumes it for max(300 s, the TTL it was made with); null when that failed.
  asio::awaitable<std::shared_ptr<Sandbox>> Wake(std::string id);

  Catalog& catalog() { return catalog_; }
  const Config& config() const { return config_; }
  // Sandboxes with a VM, and VMs that wait for a create.
  size_t live_count() const;
  size_t pooled_count() const;
  PoolState pool_state() const;
  static Micros Now();

 private:
  using SandboxPointer = std::shared_ptr<Sandbox>;
  // How many do something now; shared, since a coroutine may end after the node.
  struct Crowd {
    explicit Crowd(const asio::any_io_executor& executor_in)
        : executor(executor_in), changed(executor_in) {}
    const asio::any_io_executor executor;
    unsigned count = 0;
    uint64_t left = 0;  // how many were done so far
    http::Event changed;
  };
  class Turn;  // counts one in, and out at its end (turn.h)
  struct CreatePlan;
  struct Variant;
  using VariantPointer = std::shared_ptr<Variant>;
  struct SnapshotOrder;

  // node.cc
  Result<SandboxPointer> FindLive(const std::string& team_id, std::string_view id);
  Result<SandboxRecord> SetEnd(const SandboxPointer& sandbox, Micros end_at);
  // `team_id` empty: for ourselves.
  //   errors: kOverQuota naming limits.team_sandboxes, else CheckRoom's
  Result<void> CheckRoomFor(const SandboxSize& size, const std::string& team_id = "");
  // create.cc
  // `guest_failed` is set when the guest failed by itself, before anybody could use it.
  asio::awaitable<Result<SandboxRecord>> CreateOnce(CreateSpec spec,
                                                    std::shared_ptr<bool> guest_failed);
  Result<CreatePlan> PlanCreate(const CreateSpec& spec);
  SandboxRecord MakeRecord(const CreateSpec& spec, const CreatePlan& plan);
  asio::awaitable<Result<void>> BootOnce(SandboxPointer sandbox, std::string base_image);
  Result<void> Publish(const SandboxPointer& sandbox);
  asio::awaitable<Result<SandboxRecord>> FinishCreate(SandboxPointer sandbox, Result<void> started,
                                                      std::shared_ptr<bool> guest_failed);
  // Ends its process, waits for that, buries it.
  asio::awaitable<void> Discard(SandboxPointer sandbox, Error why);
  // boot.cc
  Result<LayerChains> BootChains(const std::string& base_image);
  asio::awaitable<Result<void>> Boot(SandboxPointer sandbox, LayerChains below);
  asio::awaitable<Result<void>> WaitForHello(SandboxPointer sandbox);
  // restore.cc
  // Folder, disk top, process with its control socket: nothing that waits.
  Result<void> PrepareVm(const SandboxPointer& sandbox);
  Result<void> LaunchProcess(const SandboxPointer& sandbox);
  // Prepare, restore, identify, when it is its turn.
  asio::awaitable<Result<void>> StartFrom(SandboxPointer sandbox, ImagePointer image,
                                          InitKind kind);
  asio::awaitable<Result<void>> RestoreVm(SandboxPointer sandbox, ImagePointer image);
  const std::shared_ptr<Crowd>& CrowdOf(const SnapshotRecord& image) const;
  asio::awaitable<Result<void>> WaitToStart(SandboxPointer sandbox, std::shared_ptr<Crowd> crowd);
  asio::awaitable<Error> WithCause(SandboxPointer sandbox, Error error);
  asio::awaitable<void> StopVm(SandboxPointer sandbox);
  // Resumes it and makes it this sandbox and no other.
  asio::awaitable<Result<void>> Identify(SandboxPointer sandbox, InitKind kind);
  Result<ImagePointer> LoadImage(const SnapshotRecord& record);
  // templates.cc
  Result<VariantPointer> FindVariant(const Template& base, const SandboxSize& size);
  asio::awaitable<Result<ImagePointer>> EnsureImage(VariantPointer variant);
  asio::awaitable<Result<ImagePointer>> Build(VariantPointer variant);
  asio::awaitable<Result<ImagePointer>> Freeze(SandboxPointer builder, VariantPointer variant);
  asio::awaitable<Result<void>> Train(ImagePointer image);
  asio::awaitable<Result<void>> RecordPages(SandboxPointer trainee, ImagePointer image);
  void ForgetVariant(const VariantPointer& variant);
  void RemoveSnapshot(const SnapshotRecord& record);
  Result<void> RemoveOldTemplates();
  asio::awaitable<void> WarmUp();
  // pool.cc
  SandboxPointer TakePooled(const VariantPointer& variant);
  asio::awaitable<void> Refill(VariantPointer variant);
  asio::awaitable<Result<SandboxPointer>> MakePooled(ImagePointer image);
  void Drain(const VariantPointer& variant);
  asio::awaitable<void> UpkeepLoop();
  uint64_t PooledBytes() const;
  bool IsIdle(const Variant& variant) const;
  // take_snapshot.cc
  asio::awaitable<Result<ImagePointer>> TakeSnapshot(SandboxPointer sandbox, SnapshotOrder order);
  Result<void> BeginSnapshot(const SandboxPointer& sandbox, const SnapshotOrder& order,
                             const LayerPointer& top);
  asio::awaitable<Result<void>> SyncLayers();
  // Row changes of a sandbox whose snapshot is over, one way or the other; inside a transaction.
  Result<void> StoreAfterSnapshot(const SandboxPointer& sandbox, SandboxState to);
  // shorten_disk.cc
  asio::awaitable<void> ShortenDisk(SandboxPointer sandbox, ImagePointer image);
  asio::awaitable<Result<LayerPointer>> MergeRoot(ImagePointer image);
  // snapshots.cc
  asio::awaitable<Result<void>> WaitUntilStill(SandboxPointer sandbox);
  Result<SnapshotRecord> NameSnapshot(const SandboxRecord& source, const std::string& name);
  Result<void> StoreSnapshot(const SandboxPointer& sandbox, const MachineImage& image,
                             SandboxState to);
  void SettleRunning(const SandboxPointer& sandbox);
  // pause.cc
  // kInsist: also without the guest, which may refuse or not answer.
  enum class Consent { kAsk, kInsist };
  asio::awaitable<Result<void>> PauseWith(SandboxPointer sandbox, bool keep_memory,
                                          Consent consent);
  asio::awaitable<Result<void>> PauseNow(SandboxPointer sandbox, bool keep_memory, Consent consent);
  asio::awaitable<Result<ImagePointer>> PauseVm(SandboxPointer sandbox, bool keep_memory,
                                                Consent consent);
  Result<ImagePointer> DiskImage(const SandboxPointer& sandbox);
  asio::awaitable<void> UndoPause(SandboxPointer sandbox);
  // resume.cc
  asio::awaitable<Result<void>> ResumeNow(SandboxPointer sandbox, ResumeSpec spec);
  asio::awaitable<Result<void>> StartPaused(SandboxPointer sandbox, ImagePointer image);
  Result<void> StoreResumed(const SandboxPointer& sandbox, int64_t timeout_seconds);
  // fork.cc
  struct SnapshotWait {
    explicit SnapshotWait(const asio::any_io_executor& executor) : changed(executor) {}
    std::optional<Result<ImagePointer>> image;
    http::Event changed;
  };
  asio::awaitable<void> TakeBranch(SandboxPointer source, std::shared_ptr<SnapshotWait> wait);
  asio::awaitable<void> StartChild(SandboxPointer child, ImagePointer image,
                                   std::shared_ptr<ForkOutcome> outcome,
                                   std::shared_ptr<Crowd> starting);
  SandboxPointer MakeChild(const SandboxRecord& source, const ForkSpec& spec);
  // life.cc
  asio::awaitable<Result<void>> End(SandboxPointer sandbox, std::string reason);
  asio::awaitable<void> EndProcess(SandboxPointer sandbox);
  struct DeathCause {
    std::string reason;
    std::string detail;
  };
  static DeathCause FindDeathCause(const Sandbox& sandbox);
  asio::awaitable<void> WatchProcess(SandboxPointer sandbox);
  asio::awaitable<void> WatchClock(SandboxPointer sandbox);
  asio::awaitable<bool> AtItsEnd(SandboxPointer sandbox);
  void Bury(const SandboxPointer& sandbox);
  Result<void> StoreDead(const SandboxPointer& sandbox);
  asio::awaitable<void> ForgetDeadLoop();
  // sample.cc
  asio::awaitable<void> SampleLoop();
  asio::awaitable<void> SampleOne(SandboxPointer sandbox);
  // adopt.cc
  asio::awaitable<void> Adopt(SandboxRecord record);
  asio::awaitable<Result<void>> TakeOver(SandboxPointer sandbox);
  asio::awaitable<Result<void>> UndoMove(SandboxPointer sandbox);
  asio::awaitable<void> AdoptPaused(SandboxPointer sandbox);
  asio::awaitable<void> EndStranger(std::string id);
  asio::awaitable<void> RemoveLeftovers();

  asio::any_io_executor executor_;
  const Config& config_;
  Catalog& catalog_;
  Launcher& launcher_;
  std::shared_ptr<LayerFolder> layers_;
  std::map<std::string, SandboxPointer, std::less<>> live_;  // of clients
  std::map<std::string, SandboxPointer, std::less<>> own_;   // pooled, and templates being built
  std::map<std::string, VariantPointer> variants_;           // by fingerprint
  std::shared_ptr<Crowd> creating_;                          // from the request on
  // Boot or restore: of operator templates, and of what guests have had in their hands. Nobody's
  // hanging snapshot keeps a template waiting.
  std::shared_ptr<Crowd> starting_;
  std::shared_ptr<Crowd> starting_used_;
  asio::thread_pool disk_work_{2};
};

// Waits until `is_done` or the limit; false at the limit. Event and function are
// the caller's, and outlive the call.
asio::awaitable<bool> WaitUntil(http::Event& event, const std::function<bool()>& is_done,
                                std::chrono::milliseconds limit);

}  // namespace space
