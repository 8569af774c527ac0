// VMs that are restored already: resumed once until their agent answered, so that their pages are
// mapped, then paused. Taking one costs a message to the VMM and one to the agent.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/units.h"
#include "http/spawn.h"
#include "node/agent_call.h"
#include "node/node.h"
#include "node/turn.h"

namespace space {
namespace {

constexpr int kPauseLimitMs = 30'000;
constexpr std::chrono::seconds kUpkeepStep{10};
constexpr Micros kTemplateRetention = 24LL * 3600 * kMicrosPerSecond;

// Private pages of the process: what it costs beyond the layers that all share.
uint64_t PrivateBytes(int64_t pid) {
  const auto text = ReadFile("/proc/" + std::to_string(pid) + "/statm");
  if (!text) {
    return 0;
  }
  std::array<uint64_t, 3> fields{};  // size, resident, shared: proc(5)
  const char* at = text->data();
  const char* const end = at + text->size();
  for (uint64_t& field : fields) {
    const auto parsed = std::from_chars(at, end, field);
    if (parsed.ec != std::errc()) {
      return 0;
    }
    at = std::min(parsed.ptr + 1, end);
  }
  return (fields[1] - std::min(fields[1], fields[2])) * kPageBytes;
}

}  // namespace

size_t Node::pooled_count() const {
  size_t count = 0;
  for (const auto& [fingerprint, variant] : variants_) {
    count += variant->idle.size();
  }
  return count;
}

PoolState Node::pool_state() const {
  PoolState state;
  state.memory_bytes = PooledBytes();
  state.memory_limit_bytes = config_.pool_memory_bytes;
  for (const auto& [fingerprint, variant] : variants_) {
    PoolEntry entry;
    entry.template_id = variant->base.id + "@" + std::to_string(variant->size.vcpus) + "c-" +
                        std::to_string(variant->size.memory_mib) + "m-" +
                        std::to_string(variant->size.disk_mib) + "d";
    entry.state = variant->is_building ? "building"
                  : variant->is_old    ? "draining"
                  : IsIdle(*variant)   ? "idle"
                                       : "ready";
    entry.ready = static_cast<unsigned>(variant->idle.size());
    entry.making = variant->is_filling ? 1 : 0;
    entry.low = config_.pool_low == 0 ? config_.pool_size : config_.pool_low;
    entry.high = config_.pool_size;
    entry.memory_mib = variant->size.memory_mib;
    entry.pooled = variant->pooled;
    entry.on_demand = variant->on_demand;
    entry.booted = variant->booted;
    state.entries.push_back(std::move(entry));
  }
  return state;
}

// Its VMs would wait for nobody.
bool Node::IsIdle(const Variant& variant) const {
  return !variant.is_default &&
         Now() - variant.used_at > std::chrono::microseconds(config_.pool_idle_time).count();
}

uint64_t Node::PooledBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, vm] : own_) {
    bytes += vm->pooled_bytes;
  }
  return bytes;
}

Node::SandboxPointer Node::TakePooled(const VariantPointer& variant) {
  SandboxPointer taken;
  while (taken == nullptr && !variant->idle.empty()) {
    taken = std::move(variant->idle.front());
    variant->idle.pop_front();
    if (taken->process_ended || taken->is_gone) {
      taken = nullptr;
    }
  }
  const size_t low = config_.pool_low == 0 ? config_.pool_size : config_.pool_low;
  if (variant->idle.size() < low && !variant->is_filling) {
    http::Spawn(executor_, Refill(variant), "refill");
  }
  if (taken != nullptr) {
    own_.erase(taken->record.id);
    taken->purpose = Sandbox::Purpose::kClient;
    taken->is_in_hands = true;
    taken->pooled_bytes = 0;
    live_[taken->record.id] = taken;
  }
  return taken;
}

asio::awaitable<void> Node::Refill(VariantPointer variant) {
  if (variant->is_filling) {
    co_return;
  }
  variant->is_filling = true;
  const auto wants_more = [&] {
    return !variant->is_old && variant->image != nullptr &&
           variant->idle.size() < config_.pool_size && PooledBytes() < config_.pool_memory_bytes;
  };
  // Creates first: whatever they wait for, it is not this.
  const std::function<bool()> is_quiet = [this] { return creating_->count == 0; };
  for (bool goes_well = true; goes_well && wants_more();) {
    if (!co_await WaitUntil(creating_->changed, is_quiet, std::chrono::minutes(1))) {
      continue;
    }
    if (!wants_more() || !CheckRoomFor(variant->size)) {  // clients may have what is left
      break;
    }
    auto made = co_await MakePooled(variant->image);
    goes_well = made.has_value();
    if (!goes_well) {
      log::Warn("pool_not_filled", {{"error", made.error().message()}});
    } else if (!variant->is_old) {
      variant->idle.push_back(*made);
    } else {
      co_await Discard(*made, Error(ErrorCode::kInternal, "template is old"));
    }
  }
  variant->is_filling = false;
}

asio::awaitable<Result<Node::SandboxPointer>> Node::MakePooled(ImagePointer image) {
  SandboxRecord record;
  record.id = "i" + RandomLowerAlnum(20);  // it will be a sandbox's
  record.template_id = image->record.template_id;
  record.vcpus = image->record.vcpus;
  record.memory_mib = image->record.memory_mib;
  record.disk_mib = image->record.disk_mib;
  record.created_at = Now();
  auto vm = std::make_shared<Sandbox>(executor_, config_.data_dir, std::move(record));
  vm->purpose = Sandbox::Purpose::kPool;
  vm->is_in_hands = true;
  own_[vm->record.id] = vm;
  Result<void> ready = PrepareVm(vm);
  if (ready) {
    ready = co_await RestoreVm(vm, image);
  }
  // It becomes a machine of its own here, and has run a command: a create only has to wake it.
  if (ready) {
    ready = co_await Identify(vm, InitKind::kRestored);
  }
  if (ready) {
    ready = co_await RunInGuest(vm->vmm, WarmingCommand());
  }
  if (ready) {
    ready = co_await PostFreeze(vm->vmm, FreezeKind::kOnlyProcesses);
  }
  if (ready) {
    ready = co_await vm->vmm->Request(wire::PauseRequest{}, {}, kPauseLimitMs);
  }
  if (ready && vm->process_ended) {
    ready = Fail(ErrorCode::kUnavailable, "the VM ended");
  }
  if (!ready) {
    co_await Discard(vm, ready.error());
    co_return Fail(std::move(ready).error().While("fill pool"));
  }
  vm->pooled_bytes = PrivateBytes(vm->record.vmm_pid);
  vm->is_in_hands = false;
  co_return vm;
}

// Its VMs end; whoever was given one keeps it.
void Node::Drain(const VariantPointer& variant) {
  for (const SandboxPointer& vm : std::exchange(variant->idle, {})) {
    vm->Signal(SIGKILL);  // WatchProcess buries it
  }
}

asio::awaitable<void> Node::UpkeepLoop() {
  asio::steady_timer timer(executor_);
  for (;;) {
    timer.expires_after(std::min<std::chrono::seconds>(kUpkeepStep, config_.pool_idle_time));
    const auto [error] = co_await timer.async_wait(http::kNoThrow);
    if (error) {
      co_return;
    }
    const Micros now = Now();
    for (auto at = variants_.begin(); at != variants_.end();) {
      const VariantPointer variant = (at++)->second;
      if (variant->is_old || IsIdle(*variant)) {
        Drain(variant);
      }
      if (variant->is_building || variant->is_filling) {
        continue;
      }
      if (variant->is_old ||
          (!variant->is_default && now - variant->used_at > kTemplateRetention)) {
        ForgetVariant(variant);
        variants_.erase(variant->fingerprint);
      } else if (variant->image != nullptr && variant->used_at != variant->used_stored_at) {
        variant->used_stored_at = variant->used_at;
        [[maybe_unused]] const auto marked =
            catalog_.snapshots().MarkUsed(variant->image->record.id, variant->used_at);
      }
      // One that is used, or always kept, and was not full because of a failure or lack of room.
      if (!variant->is_old && !IsIdle(*variant) && variant->image != nullptr) {
        http::Spawn(executor_, Refill(variant), "refill");
      }
    }
  }
}

}  // namespace space
