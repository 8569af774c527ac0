// The host's requests that concern the guest as a whole: POST /init, /freeze and /unfreeze. They
// come on the host's connections only (envd.h), one at a time. Agent's main thread only.
//
//   /init       settings; with "restore" the guest is first made unique and right again, in the
//               order of Restore below, and at last everything thaws (also what was not frozen)
//   /freeze     {"template": bool, "onlyProcesses": bool}: all but the agent stands still, and
//               disks are synced unless left out; a template loses its identity too
//   /unfreeze   undoes the standing still
// Answers 204, or {"code":..,"message":..} whose message begins with the step that failed. After
// a failed restore the guest stays frozen: it is not to be served. After a failed /freeze it runs.
#pragma once

#include <string_view>

#include <boost/asio/thread_pool.hpp>

#include "agent/guest.h"
#include "agent/process_table.h"
#include "agent/proto/rest.pb.h"
#include "agent/settings.h"
#include "http/server.h"

namespace space::agent {

class LifeCycle {
 public:
  // All outlive it; disks are synced in `pool`.
  LifeCycle(Guest& guest, ProcessTable& processes, Settings& settings, asio::thread_pool& pool)
      : guest_(guest), processes_(processes), settings_(settings), pool_(pool) {}

  // "/init", "/freeze" or "/unfreeze"
  asio::awaitable<void> Serve(http::Exchange& exchange, std::string_view path);

 private:
  asio::awaitable<Result<void>> Dispatch(std::string_view path, std::string_view body,
                                         Clock::time_point arrived);
  asio::awaitable<Result<void>> Init(std::string_view body, Clock::time_point arrived);
  asio::awaitable<Result<void>> Restore(const rpc::rest::InitRequest& request,
                                        Clock::time_point arrived);
  Result<void> RestoreFiles(const rpc::rest::RestoreRequest& request);
  asio::awaitable<Result<void>> Freeze(std::string_view body);
  asio::awaitable<Result<void>> PrepareSnapshot(bool is_template);

  Guest& guest_;
  ProcessTable& processes_;
  Settings& settings_;
  asio::thread_pool& pool_;
  bool is_busy_ = false;
};

}  // namespace space::agent
