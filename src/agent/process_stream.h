// A process's events as a Connect server stream: start, output, keepalives, end.
#pragma once

#include <memory>

#include "agent/process.h"
#include "agent/rpc.h"

namespace space::agent {

// Streams until the end of the process, the client's leaving, an error put into the subscription,
// or `deadline` (which ends the stream only).
asio::awaitable<void> StreamProcess(RpcCall& call, std::shared_ptr<Process> process,
                                    std::shared_ptr<Subscription> subscription,
                                    Clock::time_point deadline);

}  // namespace space::agent
