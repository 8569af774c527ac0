// What a command that talks to the daemon has: one thread's event loop, the API, signals.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "cli/api.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "cli/task.h"

namespace space::cli {

struct Context {
  machine::Settings settings;
  asio::io_context io;
  Api api;

  Context(machine::Settings settings_in, Endpoint endpoint)
      : settings(std::move(settings_in)), api(std::move(endpoint)) {}

  template <class T>
  Result<T> Run(asio::awaitable<Result<T>> work) {
    return RunTask(io, std::move(work));
  }
};

Result<std::unique_ptr<Context>> MakeContext(const Invocation& invocation);

// Keeps a sandbox alive while somebody is attached to it. Ends with `is_over`.
asio::awaitable<void> KeepAlive(Api api, std::string id, std::shared_ptr<bool> is_over);

// The agent of a running sandbox.
//   errors: kNotFound, naming the sandbox and, when it has died, why; kConflict when it is paused
asio::awaitable<Result<std::shared_ptr<EnvdTarget>>> FindTarget(Api api, std::string id);

// Says how the sandbox died when a cut stream was that.
asio::awaitable<std::string> DescribeCut(Api api, std::string id, std::string message);

// Exactly `count` words, else an error that quotes the usage.
Result<void> NeedWords(const Invocation& invocation, size_t count, const std::string& what);

// A table with aligned columns, the first row being its head. Each row is one line, whatever is in
// its cells.
std::string FormatTable(std::vector<std::vector<std::string>> rows);

}  // namespace space::cli
