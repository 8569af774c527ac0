#include "agent/pid1/boot.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "agent/pid1/disks.h"
#include "agent/pid1/modules.h"
#include "agent/pid1/mounts.h"
#include "agent/pid1/network.h"
#include "base/log.h"

namespace space::agent::pid1 {
namespace {

// The console may be absent (no serial device): then logs go to the kernel's buffer.
void OpenStandardDescriptors() {
  const int null = open("/dev/null", O_RDWR);
  int out = open("/dev/console", O_WRONLY | O_NOCTTY);
  if (out < 0) {
    out = open("/dev/kmsg", O_WRONLY);
  }
  if (null >= 0) {
    dup2(null, 0);
  }
  if (out >= 0) {
    dup2(out, 1);
    dup2(out, 2);
  }
  for (const int fd : {null, out}) {
    if (fd > 2) {
      close(fd);
    }
  }
}

void SetLimits() {
  // Many programs loop over all descriptors up to the soft limit, so that one stays moderate.
  const rlimit files{.rlim_cur = 65'536, .rlim_max = 1'048'576};
  setrlimit(RLIMIT_NOFILE, &files);
  const rlimit core{.rlim_cur = 0, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_CORE, &core);
  const rlimit processes{.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_NPROC, &processes);
  const rlimit locked{.rlim_cur = 8 << 20, .rlim_max = RLIM_INFINITY};
  setrlimit(RLIMIT_MEMLOCK, &locked);
}

}  // namespace

Result<BootedGuest> BootGuest() {
  umask(022);
  // Errors first go to whatever descriptor 2 is; without devtmpfs there is no console.
  SPACE_TRY_VOID(MountEarly(), "mount the kernel's file systems");
  OpenStandardDescriptors();
  signal(SIGPIPE, SIG_IGN);
  LoadModules("/modules");
  SPACE_TRY(const std::string root_device, WaitForDisk("root", std::chrono::seconds(10)),
            "find the root disk");
  SPACE_TRY_VOID(MountRoot(root_device, "/newroot"), "mount the root disk");
  SPACE_TRY_VOID(SwitchRoot("/newroot"), "switch to the root disk");
  MountLate();
  SetLimits();
  BringUpLoopback();
  return BootedGuest{.root_device = root_device,
                     .modules_device = FindDisk("modules").value_or("")};
}

}  // namespace space::agent::pid1
