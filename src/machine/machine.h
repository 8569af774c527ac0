// The emulated host: one QEMU with emulated SVM in which the daemon and its VMs run where this
// host's KVM cannot (DESIGN.md section 9). Blocking; one caller at a time per machine, held by a
// lock file.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "machine/layout.h"
#include "machine/run_state.h"
#include "machine/settings.h"

namespace space::machine {

struct StartOptions {
  std::string programs;  // folder of space, spaced, space-vmm and space-agent
  std::function<void(const std::string&)> progress;
  // Asked now and then while waiting; true ends the waiting and the machine.
  std::function<bool()> is_cancelled = [] { return false; };
  std::chrono::milliseconds limit{120'000};
};

// Starts the machine, or does nothing when it runs. Returns once it answers on a channel.
//   errors: kNotFound (QEMU, e2fsprogs, an image: says how to get it), kConflict (port taken),
//           kExhausted (memory), kUnavailable (QEMU ended: with the end of the console log),
//           kTimeout
Result<RunState> Start(const Settings& settings, const StartOptions& options);

enum class StopWay { kNotRunning, kClean, kQuit, kKilled };
// The machine's own way first, then QEMU's, then SIGKILL.
Result<StopWay> Stop(const Settings& settings);

std::optional<RunState> Running(const Settings& settings);

// What a machine gets when the configuration names no memory.
uint64_t DefaultMemory(uint64_t host_memory_bytes);
Result<uint64_t> HostMemoryBytes();
// kConflict, naming the port, when somebody listens on it.
Result<void> CheckPortIsFree(const std::string& host, uint16_t port);
// The folder of the running program.
std::string ProgramFolder();

}  // namespace space::machine
