// A guest command joined to this process: its output to ours, our input or terminal to it, signals
// that end us end it. What `run`, `exec`, `shell` and `machine exec` share.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "cli/envd.h"
#include "cli/signals.h"

namespace space::cli {

struct AttachRequest {
  ProcessRequest process;
  bool wants_input = false;     // -i; piped input is taken without being asked
  bool wants_terminal = false;  // -t
};

struct AttachEnd {
  int code = 0;  // as a shell reports it
  bool is_interrupted = false;
};

// kInvalidArgument when a terminal is wanted and standard input is none.
Result<void> CheckTerminalWish(bool wants_terminal);

// Runs to the command's end. Interrupted: first asks the command to end, kills it two seconds later
// or at the second signal, and reports 128 and the first signal.
//   errors: as ProcessStream::Start and Next
asio::awaitable<Result<AttachEnd>> Attach(asio::io_context& io, std::shared_ptr<EnvdTarget> target,
                                          AttachRequest request, EndSignals& signals);

// 127, 126 or 125 for a command that could not be started; `error` was printed.
int ExitCodeOfStartError(const Error& error);

}  // namespace space::cli
