// space-vmm: one virtual machine, driven over a control socket (src/wire/vmm_control.h).
#include <fcntl.h>
#include <malloc.h>
#include <sys/prctl.h>

#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "vmm/service.h"

namespace {

constexpr int kListenerFd = 3;
constexpr int kKvmFd = 4;
constexpr int kUsageError = 2;

constexpr std::string_view kHelp =
    "usage: space-vmm 3<listening control socket 4<>/dev/kvm\n"
    "\n"
    "Runs one virtual machine. Started by the daemon, not by hand: descriptor 3 is a listening\n"
    "SEQPACKET socket, 4 is /dev/kvm, all else comes over the socket. Opens no path. Logs to "
    "stderr.\n"
    "Exits 0 when the VM has ended and the reason was recorded.\n"
    "\n"
    "  --help, --version\n";

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--version") {
    std::puts("space-vmm " SPACE_VERSION);
    return 0;
  }
  if (argc == 2 && std::string_view(argv[1]) == "--help") {
    std::fputs(kHelp.data(), stdout);
    return 0;
  }
  if (argc != 1 || !IsOpen(kListenerFd) || !IsOpen(kKvmFd)) {
    std::fputs(kHelp.data(), stderr);
    return kUsageError;
  }
  space::log::Configure("space-vmm", space::log::Level::kInfo);
  space::BlockSignals();
  // One heap for all threads: they allocate little, and each heap of its own costs memory per VM.
  ::mallopt(M_ARENA_MAX, 1);
  // Before the next line: afterwards an unprivileged process may not open its own.
  std::optional<space::PageScan> scan;
  if (auto opened = space::PageScan::Open()) {
    scan = *std::move(opened);
  } else {
    space::log::Warn("no_snapshots", {{"why", opened.error().message()}});
  }
  // Guest memory is nobody's to read: no core dump, no ptrace by others of our uid.
  ::prctl(PR_SET_DUMPABLE, 0);
  const auto served =
      space::RunService(space::UniqueFd(kListenerFd), space::UniqueFd(kKvmFd), std::move(scan));
  if (!served) {
    space::log::Error("vmm_failed", {{"why", served.error().message()}});
    return 1;
  }
  return 0;
}
