// process.Process of envd (E2B.md 3.3): one function per method. Agent's main thread only.
#pragma once

#include <memory>
#include <string_view>

#include "agent/freezer.h"
#include "agent/process_table.h"
#include "agent/rpc.h"
#include "agent/settings.h"

namespace space::agent {

class ProcessService {
 public:
  // All outlive the service.
  ProcessService(ProcessTable& table, const Settings& settings, const Freezer& freezer)
      : table_(table), settings_(settings), freezer_(freezer) {}

  // `method` as in the path, "Start".
  asio::awaitable<void> Serve(RpcCall& call, std::string_view method);

 private:
  asio::awaitable<void> Start(RpcCall& call);
  asio::awaitable<void> Connect(RpcCall& call);
  asio::awaitable<void> List(RpcCall& call);
  asio::awaitable<Result<void>> Update(RpcCall& call);
  asio::awaitable<Result<void>> SendInput(RpcCall& call);
  asio::awaitable<Result<void>> StreamInput(RpcCall& call);
  asio::awaitable<Result<void>> SendSignal(RpcCall& call);
  asio::awaitable<Result<void>> CloseStdin(RpcCall& call);

  Result<SpawnRequest> MakeSpawnRequest(const http::RequestHead& head,
                                        const rpc::process::ProcessConfig& config) const;

  ProcessTable& table_;
  const Settings& settings_;
  const Freezer& freezer_;
};

}  // namespace space::agent
