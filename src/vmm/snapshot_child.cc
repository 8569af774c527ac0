#include "vmm/snapshot_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace space {
namespace {

// Closes all but `kept` (ascending): the child must hold neither the VM nor anyone's socket open.
void CloseOthers(std::span<const int> kept) noexcept {
  unsigned first = 0;
  for (const int fd : kept) {
    const auto end = static_cast<unsigned>(fd);
    if (end > first) {
      ::syscall(SYS_close_range, first, end - 1, 0);
    }
    first = std::max(first, end + 1);
  }
  ::syscall(SYS_close_range, first, ~0U, 0);
}

int WriteState(int fd, std::string_view state) noexcept {
  size_t done = 0;
  while (done < state.size()) {
    const ssize_t put =
        ::pwrite(fd, state.data() + done, state.size() - done, static_cast<off_t>(done));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put <= 0) {
      return put < 0 ? errno : EIO;
    }
    done += static_cast<size_t>(put);
  }
  return 0;
}

// Says who it is and waits to be let in. ECANCELED when nobody is there.
int PassGate(int gate) noexcept {
  const char here = 0;
  char answer = 0;
  ssize_t got = ::send(gate, &here, 1, MSG_NOSIGNAL);
  while (got == 1) {
    got = ::recv(gate, &answer, 1, 0);
    if (got == 1) {
      return 0;
    }
    if (got < 0 && errno == EINTR) {
      got = 1;
    }
  }
  return ECANCELED;
}

int Sync(const SnapshotWork& work) noexcept {
  for (const int fd : {work.memory_fd, work.state_fd}) {
    if (::fdatasync(fd) != 0) {
      return errno;
    }
  }
  for (const int fd : work.frozen_disks) {
    if (::fdatasync(fd) != 0) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void RunSnapshotChild(const SnapshotWork& work) noexcept {
  // A layer that is cut under us ends this child, not the machine (layer_loss.h); a file size limit
  // is an error like any other.
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  ::sigaction(SIGBUS, &action, nullptr);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, nullptr);
  // Nobody waits for this snapshot when the parent is gone.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::array<int, SnapshotWork::kMaxFrozenDisks + 3> kept{};
  size_t count = 0;
  kept[count++] = work.memory_fd;
  kept[count++] = work.state_fd;
  if (work.gate_fd >= 0) {
    kept[count++] = work.gate_fd;
  }
  for (const int fd : work.frozen_disks) {
    kept[count++] = fd;
  }
  std::sort(kept.begin(), kept.begin() + static_cast<ptrdiff_t>(count));
  CloseOthers(std::span(kept).first(count));
  int error = work.gate_fd >= 0 ? PassGate(work.gate_fd) : 0;
  if (error == 0) {
    error = WriteFrozen(*work.plan, *work.memory, work.memory_fd);
  }
  if (error == 0) {
    error = WriteState(work.state_fd, work.state);
  }
  if (error == 0 && work.is_durable) {
    error = Sync(work);
  }
  for (;;) {
    ::syscall(SYS_exit_group, error);
  }
}

}  // namespace space
