// filesystem.Filesystem of envd (E2B.md 3.4): one function per method.
#pragma once

#include <string_view>

#include <boost/asio/thread_pool.hpp>

#include "agent/rpc.h"
#include "agent/settings.h"
#include "agent/users.h"
#include "agent/watch_service.h"

namespace space::agent {

class FilesystemService {
 public:
  // Both outlive the service; blocking work runs in `pool`.
  FilesystemService(asio::thread_pool& pool, const Settings& settings)
      : pool_(pool), settings_(settings), watch_service_(pool, settings) {}

  asio::awaitable<void> Serve(RpcCall& call, std::string_view method);

 private:
  asio::awaitable<Result<void>> Stat(RpcCall& call);
  asio::awaitable<Result<void>> MakeDir(RpcCall& call);
  asio::awaitable<Result<void>> Move(RpcCall& call);
  asio::awaitable<Result<void>> ListDir(RpcCall& call);
  asio::awaitable<Result<void>> Remove(RpcCall& call);
  asio::awaitable<Result<void>> WatchDir(RpcCall& call) { return watch_service_.WatchDir(call); }
  asio::awaitable<Result<void>> CreateWatcher(RpcCall& call) {
    return watch_service_.CreateWatcher(call);
  }
  asio::awaitable<Result<void>> GetWatcherEvents(RpcCall& call) {
    return watch_service_.GetWatcherEvents(call);
  }
  asio::awaitable<Result<void>> RemoveWatcher(RpcCall& call) {
    return watch_service_.RemoveWatcher(call);
  }

  asio::thread_pool& pool_;
  const Settings& settings_;
  WatchService watch_service_;
};

}  // namespace space::agent
