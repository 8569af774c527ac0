#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "agent/pid1/boot.h"
#include "base/fd.h"

namespace space::agent::pid1 {
namespace {

bool Print(const char* path, const std::string& line) {
  const UniqueFd fd(open(path, O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return fd.valid() && WriteFull(fd.get(), line).has_value();
}

// Reaps until no child is left or the time is over.
void ReapFor(std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    const pid_t pid = waitpid(-1, nullptr, WNOHANG);
    if (pid < 0) {
      return;  // no children
    }
    if (pid == 0) {
      const timespec pause{.tv_sec = 0, .tv_nsec = 2'000'000};
      nanosleep(&pause, nullptr);
    }
  }
}

}  // namespace

void PowerOff() {
  kill(-1, SIGTERM);
  ReapFor(std::chrono::milliseconds(500));
  kill(-1, SIGKILL);
  ReapFor(std::chrono::milliseconds(500));
  sync();
  mount(nullptr, "/", nullptr, MS_REMOUNT | MS_RDONLY, nullptr);
  sync();
  reboot(RB_POWER_OFF);
  std::_Exit(0);  // not reached by PID 1 with CAP_SYS_BOOT
}

void Die(const Error& why) {
  const std::string line = "space-agent: cannot start the guest: " + why.message() + "\n";
  Print("/dev/kmsg", line);
  if (!Print("/dev/console", line)) {
    (void)WriteFull(2, line);  // before /dev was there
  }
  sync();
  std::_Exit(1);  // PID 1's end is a kernel panic
}

}  // namespace space::agent::pid1
