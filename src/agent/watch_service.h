// The watching methods of filesystem.Filesystem (E2B.md 3.4): a stream of a folder's changes, and
// watchers that keep them until they are asked for. Agent's main thread only.
#pragma once

#include <map>
#include <memory>
#include <string>

#include <boost/asio/thread_pool.hpp>

#include "agent/rpc.h"
#include "agent/settings.h"

namespace space::agent {

class FolderEvents;

class WatchService {
 public:
  static constexpr size_t kMaxWatchers = 256;

  // Both outlive the service; blocking work runs in `pool`.
  WatchService(asio::thread_pool& pool, const Settings& settings)
      : pool_(pool), settings_(settings) {}

  asio::awaitable<Result<void>> WatchDir(RpcCall& call);
  asio::awaitable<Result<void>> CreateWatcher(RpcCall& call);
  asio::awaitable<Result<void>> GetWatcherEvents(RpcCall& call);
  asio::awaitable<Result<void>> RemoveWatcher(RpcCall& call);

 private:
  asio::awaitable<Result<std::shared_ptr<FolderEvents>>> Open(RpcCall& call);
  asio::awaitable<Result<std::string>> ReadId(RpcCall& call);

  asio::thread_pool& pool_;
  const Settings& settings_;
  std::map<std::string, std::shared_ptr<FolderEvents>> watchers_;
};

}  // namespace space::agent
