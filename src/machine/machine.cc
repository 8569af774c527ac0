#include "machine/machine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <thread>

#include "base/log.h"
#include "base/process.h"
#include "base/units.h"
#include "machine/backlog.h"
#include "machine/channel.h"
#include "machine/console_log.h"
#include "machine/disks.h"
#include "machine/guest_files.h"
#include "machine/monitor.h"
#include "machine/qemu_arguments.h"
#include "machine/tool.h"

namespace space::machine {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr size_t kTailLines = 15;

Result<UniqueFd> LockMachine(const Layout& layout) {
  SPACE_TRY_VOID(MakeDirectories(layout.run, 0700), "machine state");
  if (::chmod(layout.run.c_str(), 0700) != 0) {
    return FailErrno("protect", layout.run);
  }
  UniqueFd fd(::open(layout.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return FailErrno("open", layout.lock());
  }
  if (::flock(fd.get(), LOCK_EX) != 0) {
    return FailErrno("lock", layout.lock());
  }
  return fd;
}

Result<void> NeedFile(const std::string& path, const std::string& part) {
  if (::access(path.c_str(), R_OK) == 0) {
    return {};
  }
  return FailErrno("image " + part +
                       " of the emulated host is missing (make it with images/build or " +
                       "./quickstart.sh, or set images_dir)",
                   path);
}

// Sockets beyond this cannot be bound; QEMU's own message names no path.
Result<void> CheckSocketPaths(const Layout& layout) {
  const std::string longest = layout.channel_socket(kChannels - 1);
  if (longest.size() >= sizeof(sockaddr_un{}.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "run_dir is too long for a unix socket", longest);
  }
  return {};
}

Result<QemuPlan> PlanMachine(const Settings& settings) {
  QemuPlan plan;
  plan.kernel = settings.images_dir + "/kernel/vmlinux";
  plan.initrd = settings.images_dir + "/machine/initrd.img";
  plan.root_image = settings.images_dir + "/machine/root.img";
  SPACE_TRY_VOID(NeedFile(plan.kernel, "kernel"), "check");
  SPACE_TRY_VOID(NeedFile(plan.initrd, "initrd"), "check");
  SPACE_TRY_VOID(NeedFile(plan.root_image, "root disk"), "check");
  SPACE_TRY(const uint64_t host_bytes, HostMemoryBytes(), "check");
  plan.memory_bytes = settings.machine.memory_bytes == 0 ? DefaultMemory(host_bytes)
                                                         : settings.machine.memory_bytes;
  if (plan.memory_bytes >= host_bytes) {
    return Fail(ErrorCode::kExhausted, "machine.memory is " + FormatSize(plan.memory_bytes) +
                                           " but this host has " + FormatSize(host_bytes));
  }
  plan.cpus = settings.machine.cpus;
  plan.host_port = settings.listen_port;
  return plan;
}

Result<std::string> WriteInnerFile(const Layout& layout, const std::string& name,
                                   const std::string& text) {
  const std::string path = layout.disks + "/" + name;
  // Rewriting would change the time and so make the disk anew.
  if (const auto present = ReadFile(path); !present || *present != text) {
    SPACE_TRY_VOID(WriteFileAtomically(path, text), "prepare machine");
  }
  return path;
}

Result<void> MakeBinariesDisk(const Settings& settings, const Layout& layout,
                              const StartOptions& options) {
  std::vector<DiskFile> files;
  for (const std::string name : {"space", "spaced", "space-vmm", "space-agent"}) {
    const std::string path = options.programs + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) {
      files.push_back({path, "bin/" + name, 0755});
    } else {
      options.progress("program " + path + " is not built: the machine comes up without it");
    }
  }
  SPACE_TRY(const std::string start, WriteInnerFile(layout, "machine-start", StartScript()),
            "start script");
  SPACE_TRY(const std::string stop, WriteInnerFile(layout, "machine-stop", StopScript()),
            "stop script");
  SPACE_TRY(const std::string config, InnerConfig(settings), "inner configuration");
  SPACE_TRY(const std::string config_path, WriteInnerFile(layout, "config.toml", config),
            "configuration");
  files.push_back({start, "machine-start", 0755});
  files.push_back({stop, "machine-stop", 0755});
  files.push_back({config_path, "config.toml", 0600});
  for (const std::string& path : settings.machine.extra_files) {
    files.push_back({path, "extra/" + path.substr(path.rfind('/') + 1), 0755});
  }
  return MakeDisk(layout.binaries_disk(), "space-bin", files, options.progress);
}

// True when there are guest images to carry; a machine without them serves tests of single
// programs.
Result<bool> MakeImagesDisk(const Settings& settings, const Layout& layout,
                            const StartOptions& options) {
  std::vector<DiskFile> files;
  for (const std::string name : {"kernel/vmlinux", "kernel/release", "kernel/modules.img",
                                 "initramfs.img", "base.img", "base.json"}) {
    const std::string path = settings.images_dir + "/" + name;
    if (::access(path.c_str(), R_OK) == 0) {
      files.push_back({path, name, 0644});
    }
  }
  if (files.empty()) {
    return false;
  }
  SPACE_TRY_VOID(MakeDisk(layout.images_disk(), "space-images", files, options.progress), "images");
  return true;
}

Result<ChildProcess> SpawnConsole(const Layout& layout, const StartOptions& options, int input) {
  SpawnSpec spec;
  spec.program = options.programs + "/space";
  spec.arguments = {"machine-console", layout.console()};
  spec.stdin_fd = input;
  return ChildProcess::Spawn(spec);
}

Result<ChildProcess> SpawnQemu(const Settings& settings, const Layout& layout, const QemuPlan& plan,
                               const StartOptions& options) {
  SPACE_TRY(const std::string qemu, FindProgram(settings.machine.qemu, "qemu-system-x86"), "check");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return FailErrno("make pipe");
  }
  const UniqueFd console_input(ends[0]);
  const UniqueFd output(ends[1]);
  SPACE_TRY(ChildProcess console, SpawnConsole(layout, options, console_input.get()),
            "console log");
  SpawnSpec spec;
  spec.program = qemu;
  spec.arguments = QemuArguments(plan, layout);
  // The temporary file of the root disk's changes goes beside the other disks, not to a small /tmp.
  spec.environment = {"PATH=/usr/bin:/bin", "TMPDIR=" + layout.disks, "LC_ALL=C"};
  spec.stdout_fd = output.get();
  spec.stderr_fd = output.get();
  SPACE_TRY(ChildProcess child, ChildProcess::Spawn(spec), "start QEMU");
  (void)std::move(console).Detach();  // ends by itself at QEMU's end
  return child;
}

std::string WithConsole(const Layout& layout, std::string message) {
  const std::string tail = LogTail(layout.console(), kTailLines);
  if (!tail.empty()) {
    message += "\n--- end of " + layout.console() + "\n" + tail;
  }
  return message;
}

Result<void> AwaitAnswer(ChildProcess& qemu, const Layout& layout, const StartOptions& options) {
  const auto begun = Clock::now();
  while (Clock::now() - begun < options.limit) {
    SPACE_TRY(const auto ended, qemu.Wait(milliseconds(100)), "watch QEMU");
    if (ended) {
      // Its last words may still be on their way to the log.
      std::this_thread::sleep_for(milliseconds(200));
      return Fail(ErrorCode::kUnavailable,
                  WithConsole(layout, std::string("QEMU ended with ") +
                                          (ended->by_signal ? "signal " : "code ") +
                                          std::to_string(ended->value)));
    }
    if (options.is_cancelled()) {
      return Fail(ErrorCode::kUnavailable, "interrupted while the machine was starting");
    }
    // Before the relay is up nobody answers, so no long wait on one port.
    if (OpenChannel(layout, Verb::kPing, milliseconds(700))) {
      return {};
    }
  }
  return Fail(ErrorCode::kTimeout, WithConsole(layout, "the machine did not come up in time"));
}

void RemoveSockets(const Layout& layout) {
  for (size_t i = 0; i < kChannels; ++i) {
    (void)::unlink(layout.channel_socket(i).c_str());
  }
  (void)::unlink(layout.monitor_socket().c_str());
}

bool HasEnded(int pidfd, milliseconds limit) {
  pollfd entry = {pidfd, POLLIN, 0};
  return ::poll(&entry, 1, static_cast<int>(limit.count())) > 0;
}

// One QEMU, up and answering; none is left running otherwise.
Result<RunState> BootOnce(const Settings& settings, const Layout& layout, const QemuPlan& plan,
                          const StartOptions& options) {
  SPACE_TRY(ChildProcess qemu, SpawnQemu(settings, layout, plan, options), "boot");
  RunState state{qemu.pid(), 0, plan.host_port, plan.memory_bytes, plan.cpus};
  if (const auto ticks = StartTicksOf(qemu.pid())) {
    state.start_ticks = *ticks;
    SPACE_TRY_VOID(SaveRunState(layout.state(), state), "boot");
  }
  SPACE_TRY_VOID(AwaitAnswer(qemu, layout, options), "boot");
  if (const auto raised = RaiseBacklog(qemu.pid(), plan.host_port); !raised) {
    log::Warn("machine_backlog", {{"error", raised.error().message()}});  // it is only slower
  }
  (void)std::move(qemu).Detach();
  return state;
}

}  // namespace

uint64_t DefaultMemory(uint64_t host_memory_bytes) {
  return std::min(GiB(8), host_memory_bytes / 2) / MiB(1) * MiB(1);
}

Result<uint64_t> HostMemoryBytes() {
  struct sysinfo info = {};
  if (::sysinfo(&info) != 0) {
    return FailErrno("read the host's memory");
  }
  return static_cast<uint64_t>(info.totalram) * info.mem_unit;
}

Result<void> CheckPortIsFree(const std::string& host, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
    return FailErrno("make socket");
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), 1) != 0) {
    if (errno == EADDRINUSE) {
      return Fail(ErrorCode::kConflict, "port " + std::to_string(port) + " of " + host +
                                            " is taken by another program; set listen in the "
                                            "configuration, or end that program");
    }
    return FailErrno("try port", std::to_string(port));
  }
  return {};
}

std::string ProgramFolder() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string text(path, size > 0 ? static_cast<size_t>(size) : 0);
  const size_t slash = text.rfind('/');
  return slash == std::string::npos ? "." : text.substr(0, slash);
}

Result<RunState> Start(const Settings& settings, const StartOptions& options) {
  const Layout layout(settings);
  SPACE_TRY(const UniqueFd lock, LockMachine(layout), "start machine");
  if (const auto running = LoadRunning(layout.state())) {
    return *running;
  }
  SPACE_TRY_VOID(CheckSocketPaths(layout), "start machine");
  SPACE_TRY_VOID(FindProgram(settings.machine.qemu, "qemu-system-x86"), "start machine");
  SPACE_TRY(QemuPlan plan, PlanMachine(settings), "start machine");
  SPACE_TRY_VOID(CheckPortIsFree("127.0.0.1", settings.listen_port), "start machine");
  SPACE_TRY_VOID(MakeDirectories(layout.disks, 0700), "start machine");
  SPACE_TRY_VOID(MakeBinariesDisk(settings, layout, options), "start machine");
  SPACE_TRY(plan.has_images_disk, MakeImagesDisk(settings, layout, options), "start machine");
  SPACE_TRY_VOID(MakeSparseFile(layout.data_disk(), settings.machine.disk_bytes), "start machine");
  RemoveSockets(layout);
  options.progress("starting the emulated host (" + FormatSize(plan.memory_bytes) + ", " +
                   std::to_string(plan.cpus) + " CPUs)");
  auto state = BootOnce(settings, layout, plan, options);
  if (!state && state.error().code() == ErrorCode::kTimeout) {
    // Seen once in some twenty boots on busy hosts: the emulated processors spin for ever.
    options.progress("the emulated host did not come up, once more");
    RemoveSockets(layout);
    state = BootOnce(settings, layout, plan, options);
  }
  if (!state) {
    (void)::unlink(layout.state().c_str());
    return Fail(std::move(state).error().While("start machine"));
  }
  return state;
}

Result<StopWay> Stop(const Settings& settings) {
  const Layout layout(settings);
  SPACE_TRY(const UniqueFd lock, LockMachine(layout), "stop machine");
  const auto running = LoadRunning(layout.state());
  if (!running) {
    (void)::unlink(layout.state().c_str());
    return StopWay::kNotRunning;
  }
  SPACE_TRY(const UniqueFd pidfd, OpenPidfd(running->pid), "stop machine");
  StopWay way = StopWay::kClean;
  const bool asked = OpenChannel(layout, Verb::kStop, milliseconds(8000)).has_value();
  if (!asked || !HasEnded(pidfd.get(), milliseconds(30'000))) {
    way = StopWay::kQuit;
    if (!QuitQemu(layout.monitor_socket(), milliseconds(3000)) ||
        !HasEnded(pidfd.get(), milliseconds(10'000))) {
      way = StopWay::kKilled;
      (void)::kill(running->pid, SIGKILL);
      if (!HasEnded(pidfd.get(), milliseconds(10'000))) {
        return Fail(ErrorCode::kTimeout, "QEMU does not end, pid", std::to_string(running->pid));
      }
    }
  }
  RemoveSockets(layout);
  (void)::unlink(layout.state().c_str());
  return way;
}

std::optional<RunState> Running(const Settings& settings) {
  return LoadRunning(Layout(settings).state());
}

}  // namespace space::machine
