// filesystem.Filesystem of envd (E2B.md 3.4): one function per method. Watching directories is not
// implemented yet and says so.
#pragma once

#include <string_view>

#include <boost/asio/thread_pool.hpp>

#include "agent/rpc.h"
#include "agent/settings.h"
#include "agent/users.h"

namespace space::agent {

class FilesystemService {
 public:
  // Both outlive the service; blocking work runs in `pool`.
  FilesystemService(asio::thread_pool& pool, const Settings& settings)
      : pool_(pool), settings_(settings) {}

  asio::awaitable<void> Serve(RpcCall& call, std::string_view method);

 private:
  asio::awaitable<Result<void>> Stat(RpcCall& call);
  asio::awaitable<Result<void>> MakeDir(RpcCall& call);
  asio::awaitable<Result<void>> Move(RpcCall& call);
  asio::awaitable<Result<void>> ListDir(RpcCall& call);
  asio::awaitable<Result<void>> Remove(RpcCall& call);

  asio::thread_pool& pool_;
  const Settings& settings_;
};

}  // namespace space::agent
