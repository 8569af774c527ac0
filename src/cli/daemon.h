// The daemon as the command line sees it: started and stopped on this host, or inside the emulated
// one.
#pragma once

#include <optional>
#include <string>

#include "cli/context.h"
#include "machine/emulation.h"
#include "machine/settings.h"

namespace space::cli {

// The user's configuration without our own [machine] table, in run_dir; its path.
Result<std::string> WriteDaemonConfig(const machine::Settings& settings);
std::string DaemonLogPath(const machine::Settings& settings);

// The daemon that this configuration has on this host.
std::optional<pid_t> LocalDaemonPid(const machine::Settings& settings);
// Starts spaced detached and waits until the API answers.
//   errors: kConflict (port taken), kNotFound (program), kUnavailable with the end of its log
Result<void> StartLocalDaemon(Context& context);
// The API answers within `limit_ms`; a sign of life on a terminal meanwhile.
Result<void> AwaitApi(Context& context, int limit_ms);

// The first key, from the data folder here or inside the machine.
Result<std::string> FetchAdminKey(Context& context, bool is_emulated);

// Ends sandboxes and daemon. False when none ran here.
Result<bool> StopLocalDaemon(Context& context);

// Removes what this configuration made: data and run folder, the stored key, the notes of what was
// told. Adds a line for each to `removed`.
Result<void> PurgeAll(const machine::Settings& settings, const std::string& url,
                      std::string& removed);
// kInvalidArgument for folders that hold more than ours could.
Result<void> CheckPurgeable(const std::string& path);

}  // namespace space::cli
