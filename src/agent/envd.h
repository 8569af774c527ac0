// envd, the guest's HTTP surface (E2B.md 3): routing, access, and the services behind it. One per
// agent; agent's main thread only, but for blocking file work in its pool.
#pragma once

#include <string_view>

#include <boost/asio/thread_pool.hpp>

#include "agent/cpu_usage.h"
#include "agent/filesystem_service.h"
#include "agent/guest.h"
#include "agent/life_cycle.h"
#include "agent/process_service.h"
#include "agent/process_table.h"
#include "agent/settings.h"
#include "http/server.h"

namespace space::agent {

// `Exchange::peer()` of the daemon's own connections: only they reach internal paths.
constexpr std::string_view kHostPeer = "host";
// Of the daemon's connections for its clients.
constexpr std::string_view kClientPeer = "client";

class Envd {
 public:
  Envd(const asio::any_io_executor& executor, Settings settings, Guest guest);

  ProcessTable& processes() { return processes_; }
  // The handler for http::Server.
  asio::awaitable<void> Serve(http::Exchange& exchange);

 private:
  asio::awaitable<void> ServeInternal(http::Exchange& exchange, std::string_view path);
  asio::awaitable<void> ServeRest(http::Exchange& exchange, const http::Target& target);
  asio::awaitable<void> ServeFiles(http::Exchange& exchange, const http::Target& target);
  asio::awaitable<void> ServeRpc(http::Exchange& exchange, const http::Target& target);

  Settings settings_;
  Guest guest_;
  asio::thread_pool pool_{1};
  ProcessTable processes_;
  ProcessService process_service_;
  FilesystemService filesystem_service_;
  CpuUsage cpu_usage_;
  LifeCycle life_cycle_;
};

}  // namespace space::agent
