// What the node asks of the agent in a guest (HTTP on the vsock port that only we reach). One
// io_context thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "catalog/records.h"
#include "node/vmm_client.h"

namespace space {

// GET /health answered.
asio::awaitable<Result<void>> CheckHealth(std::shared_ptr<VmmClient> vmm);

// kRestored: a copy, which gets what makes it unique; kPooled: one that had that in the pool;
// kResumed: the same machine as before.
enum class InitKind { kBooted, kRestored, kPooled, kResumed };
// POST /init: settings, clock, and after a restore fresh randomness. The time is read right
// before it is sent.
//   errors: kInternal with the agent's words when it refused
asio::awaitable<Result<void>> PostInit(std::shared_ptr<VmmClient> vmm, SandboxRecord record,
                                       InitKind kind);

// Stops all of the user's processes and writes the guest's disks out; for a template it also
// removes what copies must not share. kOnlyProcesses leaves the disks as they are.
enum class FreezeKind { kKeep, kTemplate, kOnlyProcesses };
asio::awaitable<Result<void>> PostFreeze(std::shared_ptr<VmmClient> vmm, FreezeKind kind);
asio::awaitable<Result<void>> PostUnfreeze(std::shared_ptr<VmmClient> vmm);

// GET /metrics, with the sandbox's token; `at` is left to the caller. The guest may say what it
// likes: numbers are kept within what they can be.
//   errors: kTimeout after two seconds, kInvalidArgument for what is no such answer
asio::awaitable<Result<MetricPoint>> FetchMetrics(std::shared_ptr<VmmClient> vmm,
                                                  std::string token);

// Runs a program as root to its end, whatever that is: what it reads and touches is in memory then.
asio::awaitable<Result<void>> RunInGuest(std::shared_ptr<VmmClient> vmm,
                                         std::vector<std::string> command);

// What nearly every command of E2B's clients begins with.
std::vector<std::string> WarmingCommand();

// The guest's own text goes to clients and logs: printable ASCII only.
std::string Printable(std::string text);

}  // namespace space
