#include "agent/watch_service.h"

#include <optional>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/blocking.h"
#include "agent/event_stream.h"
#include "agent/folder_watch.h"
#include "agent/path_request.h"
#include "base/random.h"

namespace space::agent {

namespace pb = rpc::filesystem;

// A watched folder whose changes are queued. Its loop keeps it alive until Close.
class FolderEvents final : public EventSource {
 public:
  FolderEvents(const asio::any_io_executor& executor, FolderWatch watch)
      : watch_(std::move(watch)), changed_(executor), inotify_(executor, watch_.fd()) {}
  FolderEvents(const FolderEvents&) = delete;
  FolderEvents& operator=(const FolderEvents&) = delete;
  ~FolderEvents() override { inotify_.release(); }  // the watch closes it

  static asio::awaitable<void> Follow(std::shared_ptr<FolderEvents> self) {
    while (!self->is_closed_ && !self->lost_) {
      if (self->watch_.is_full()) {
        co_await self->changed_.Wait();
        continue;
      }
      const auto [error] = co_await self->inotify_.async_wait(Descriptor::wait_read, kNoThrow);
      if (!error && !self->is_closed_) {
        self->Read();
      }
    }
  }

  void Close() override {
    is_closed_ = true;
    boost::system::error_code ignored;
    inotify_.cancel(ignored);
    changed_.Notify();
  }
  bool is_closed() const override { return is_closed_; }
  const std::optional<Error>& error() const override { return no_error_; }
  std::string TakeBatch(Codec codec) override {
    constexpr size_t kMaxBatch = 256;
    std::string batch;
    for (size_t count = 0; count < kMaxBatch && !watch_.queue().empty(); ++count) {
      pb::WatchDirResponse response;
      *response.mutable_filesystem() = std::move(watch_.queue().front());
      watch_.queue().pop_front();
      batch += AsEnvelope(codec, response);
    }
    changed_.Notify();  // there is room
    return batch;
  }
  std::optional<Result<std::string>> TakeEnd(Codec /*codec*/) override {
    if (!lost_) {
      return std::nullopt;
    }
    return Fail(*lost_);
  }
  std::string Keepalive(Codec codec) const override {
    pb::WatchDirResponse response;
    response.mutable_keepalive();
    return AsEnvelope(codec, response);
  }
  Wake& changed() override { return changed_; }

  // All that has happened up to now.
  //   errors: kExhausted when some of it is lost and nothing before that is left
  Result<void> TakeAll(pb::GetWatcherEventsResponse& into) {
    Read();
    if (watch_.queue().empty() && lost_) {
      return Fail(*lost_);
    }
    for (pb::FilesystemEvent& event : watch_.queue()) {
      *into.add_events() = std::move(event);
    }
    watch_.queue().clear();
    changed_.Notify();
    return {};
  }

 private:
  using Descriptor = asio::posix::stream_descriptor;

  void Read() {
    if (lost_) {
      return;
    }
    auto read = watch_.Read();
    if (!read) {
      lost_ = std::move(read).error();
    }
    changed_.Notify();
  }

  FolderWatch watch_;
  Wake changed_;
  Descriptor inotify_;
  bool is_closed_ = false;
  std::optional<Error> lost_;
  const std::optional<Error> no_error_;
};

asio::awaitable<Result<std::shared_ptr<FolderEvents>>> WatchService::Open(RpcCall& call) {
  SPACE_CO_TRY(const auto asked, co_await ReadPath<pb::WatchRequest>(call, settings_), "");
  const FolderWatch::Options options{.is_recursive = asked.request.recursive(),
                                     .has_entries = asked.request.include_entry(),
                                     .may_be_network = asked.request.allow_network_mounts()};
  const auto create = [&asked, &options] { return FolderWatch::Create(asked.path, options); };
  auto watch = co_await RunBlocking(pool_, create);
  if (!watch) {
    co_return Fail(std::move(watch).error());
  }
  const auto executor = co_await asio::this_coro::executor;
  auto events = std::make_shared<FolderEvents>(executor, *std::move(watch));
  asio::co_spawn(executor, FolderEvents::Follow(events), asio::detached);
  co_return events;
}

asio::awaitable<Result<void>> WatchService::WatchDir(RpcCall& call) {
  SPACE_CO_TRY(const auto events, co_await Open(call), "");
  pb::WatchDirResponse start;
  start.mutable_start();
  std::string first = AsEnvelope(call.codec(), start);
  std::shared_ptr<EventSource> source = events;
  co_await StreamEvents(call, std::move(first), std::move(source), call.deadline());
  events->Close();
  co_return Result<void>();
}

asio::awaitable<Result<void>> WatchService::CreateWatcher(RpcCall& call) {
  if (watchers_.size() >= kMaxWatchers) {
    co_return Fail(ErrorCode::kExhausted, "more than " + std::to_string(kMaxWatchers) +
                                              " watchers: remove those that are not needed");
  }
  SPACE_CO_TRY(auto events, co_await Open(call), "");
  pb::CreateWatcherResponse response;
  response.set_watcher_id(RandomHex(8));
  watchers_[response.watcher_id()] = std::move(events);
  co_await call.Respond(response);
  co_return Result<void>();
}

asio::awaitable<Result<std::string>> WatchService::ReadId(RpcCall& call) {
  pb::WatcherRequest request;
  SPACE_CO_TRY_VOID(co_await call.ReadRequest(request), "");
  SPACE_CO_TRY_VOID(SelectUser(call.request(), std::nullopt, settings_), "");
  if (!watchers_.contains(request.watcher_id())) {
    co_return Fail(ErrorCode::kNotFound, "watcher '" + request.watcher_id() + "' does not exist");
  }
  co_return request.watcher_id();
}

asio::awaitable<Result<void>> WatchService::GetWatcherEvents(RpcCall& call) {
  SPACE_CO_TRY(const std::string id, co_await ReadId(call), "");
  pb::GetWatcherEventsResponse response;
  SPACE_CO_TRY_VOID(watchers_[id]->TakeAll(response), "");
  co_await call.Respond(response);
  co_return Result<void>();
}

asio::awaitable<Result<void>> WatchService::RemoveWatcher(RpcCall& call) {
  SPACE_CO_TRY(const std::string id, co_await ReadId(call), "");
  watchers_[id]->Close();
  watchers_.erase(id);
  co_await call.Respond(pb::RemoveWatcherResponse());
  co_return Result<void>();
}

}  // namespace space::agent
