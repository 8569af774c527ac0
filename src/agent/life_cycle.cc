#include "agent/life_cycle.h"

#include <algorithm>
#include <array>

#include <boost/asio/post.hpp>

#include "agent/codec.h"
#include "agent/hooks.h"
#include "agent/init_request.h"
#include "agent/respond.h"
#include "agent/sync_disks.h"
#include "base/random.h"

namespace space::agent {
namespace {

constexpr size_t kMaxBodyBytes = 1 << 20;
constexpr std::chrono::seconds kFreezeLimit{5};
// A frozen program may be what a disk's writes wait for (FUSE below a loop device): then never.
constexpr std::chrono::seconds kSyncLimit{60};
constexpr size_t kMinEntropyBytes = 32;
constexpr size_t kMaxEntropyBytes = 512;

bool IsMachineId(std::string_view id) {
  return id.size() == 32 && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<void> CheckRestore(const rpc::rest::InitRequest& request) {
  const auto& restore = request.restore();
  if (!request.has_timestamp() || request.timestamp().nanos() < 0 ||
      request.timestamp().seconds() < 0) {
    return Fail(ErrorCode::kInvalidArgument, "restore needs a timestamp");
  }
  if (restore.entropy().size() < kMinEntropyBytes || restore.entropy().size() > kMaxEntropyBytes) {
    return Fail(ErrorCode::kInvalidArgument, "restore.entropy needs 32 to 512 bytes");
  }
  if (restore.has_machine_id() && !IsMachineId(restore.machine_id())) {
    return Fail(ErrorCode::kInvalidArgument, "restore.machineId is not 32 hex digits");
  }
  return {};
}

// What the host's clock shows now.
WallTime HostTime(const google::protobuf::Timestamp& sent, Clock::time_point arrived) {
  return std::chrono::seconds(sent.seconds()) + std::chrono::nanoseconds(sent.nanos()) +
         (Clock::now() - arrived);
}

asio::awaitable<Result<void>> SyncWithLimit(asio::thread_pool& pool) {
  struct State {
    explicit State(const asio::any_io_executor& executor) : changed(executor) {}
    Wake changed;
    std::optional<Result<void>> result;
  };
  const auto home = co_await asio::this_coro::executor;
  const auto state = std::make_shared<State>(home);
  // Shared, since a sync that hangs outlives the wait for it.
  asio::post(pool, [state, home] {
    auto result = SyncDisks();
    asio::post(home, [state, result = std::move(result)]() mutable {
      state->result = std::move(result);
      state->changed.Notify();
    });
  });
  const auto until = Clock::now() + kSyncLimit;
  while (!state->result && Clock::now() < until) {
    co_await state->changed.Wait(until);
  }
  if (!state->result) {
    co_return Fail(ErrorCode::kTimeout, "disks were not written in time");
  }
  co_return *state->result;
}

}  // namespace

asio::awaitable<void> LifeCycle::Serve(http::Exchange& exchange, std::string_view path) {
  const auto arrived = Clock::now();
  const auto body = co_await exchange.ReadAll(kMaxBodyBytes);
  if (!body) {
    co_return co_await RespondRestError(exchange, 400, body.error().message());
  }
  if (is_busy_) {
    co_return co_await RespondRestError(exchange, 409, "another such request is being served");
  }
  is_busy_ = true;
  const auto done = co_await Dispatch(path, *body, arrived);
  is_busy_ = false;
  if (!done) {
    // What fails in the guest is no mistake of the request, whatever its code.
    const int status = done.error().code() == ErrorCode::kInvalidArgument ? 400 : 500;
    co_return co_await RespondRestError(exchange, status, done.error().message());
  }
  co_await RespondEmpty(exchange, 204);
}

asio::awaitable<Result<void>> LifeCycle::Dispatch(std::string_view path, std::string_view body,
                                                  Clock::time_point arrived) {
  if (path == "/init") {
    co_return co_await Init(body, arrived);
  }
  if (path == "/freeze") {
    co_return co_await Freeze(body);
  }
  co_return guest_.freezer.Thaw();
}

asio::awaitable<Result<void>> LifeCycle::Init(std::string_view body, Clock::time_point arrived) {
  rpc::rest::InitRequest request;
  SPACE_CO_TRY_VOID(Decode(Codec::kJson, body, request), "init");
  if (!request.has_restore()) {
    ApplyInit(request, settings_, guest_);
    co_return Result<void>();
  }
  SPACE_CO_TRY_VOID(CheckRestore(request), "init");
  auto restored = co_await Restore(request, arrived);
  if (!restored) {
    co_return Fail(ErrorCode::kInternal, restored.error().message());
  }
  co_return restored;
}

asio::awaitable<Result<void>> LifeCycle::Restore(const rpc::rest::InitRequest& request,
                                                 Clock::time_point arrived) {
  const auto& restore = request.restore();
  KernelState& kernel = *guest_.kernel;
  SPACE_CO_TRY_VOID(CorrectClock(kernel, HostTime(request.timestamp(), arrived)), "restore clock");
  SPACE_CO_TRY_VOID(kernel.AddEntropy(std::as_bytes(
                        std::span(restore.entropy().data(), restore.entropy().size()))),
                    "restore entropy");
  if (guest_.root) {
    SPACE_CO_TRY_VOID(RestoreFiles(restore), "restore files");
    if (restore.hooks()) {
      SPACE_CO_TRY_VOID(co_await RunHooks(processes_, guest_.freezer, *guest_.root),
                        "restore hooks");
    }
  }
  ApplyInit(request, settings_, guest_);
  SPACE_CO_TRY_VOID(guest_.freezer.Thaw(), "thaw");
  co_return Result<void>();
}

Result<void> LifeCycle::RestoreFiles(const rpc::rest::RestoreRequest& request) {
  if (request.has_machine_id()) {
    SPACE_TRY_VOID(WriteMachineId(*guest_.root, request.machine_id()), "machine id");
  }
  SPACE_TRY_VOID(RemoveSeeds(*guest_.root), "seeds");
  if (!guest_.generation) {
    return Fail(ErrorCode::kUnavailable, "/run/space/generation could not be made at boot");
  }
  std::array<std::byte, 16> id;
  FillRandom(id);
  return guest_.generation->Advance(id);
}

asio::awaitable<Result<void>> LifeCycle::Freeze(std::string_view body) {
  rpc::rest::FreezeRequest request;
  SPACE_CO_TRY_VOID(Decode(Codec::kJson, body, request), "freeze");
  SPACE_CO_TRY_VOID(co_await guest_.freezer.Freeze(kFreezeLimit), "freeze");
  if (request.only_processes()) {
    co_return Result<void>();
  }
  auto prepared = co_await PrepareSnapshot(request.template_());
  if (!prepared) {
    (void)guest_.freezer.Thaw();
  }
  co_return prepared;
}

asio::awaitable<Result<void>> LifeCycle::PrepareSnapshot(bool is_template) {
  if (is_template && guest_.root) {
    SPACE_CO_TRY_VOID(RemoveIdentity(*guest_.root), "freeze a template");
  }
  if (guest_.has_disks) {
    SPACE_CO_TRY_VOID(co_await SyncWithLimit(pool_), "freeze");
  }
  co_return Result<void>();
}

}  // namespace space::agent
