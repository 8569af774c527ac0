// vmm-driver: starts space-vmm and drives it over its control socket, for tests and benchmarks. The
// command line is the machine; events go to stdout, one line each:
//
//   started N us | hello N us | connected PORT | status ... | exit REASON DETAIL
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/seqpacket.h"
#include "base/units.h"
#include "layer/sparse_layer.h"
#include "wire/vmm_control.h"

namespace space {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kHelp =
    "usage: vmm-driver --vmm PATH --kernel FILE --initramfs FILE [options]\n"
    "  --vcpus N --memory SIZE --append TEXT --serial FILE --serial-limit SIZE\n"
    "  --disk ID=RAW[,SPARSE...][:ro]  layers bottom first; the first is raw, the\n"
    "                     last of several is made when missing\n"
    "  --size SIZE        of the next disks (default: the first layer's)\n"
    "  --kvm FILE         default /dev/kvm\n"
    "  --until hello|exit what to wait for (default exit), then the VM is killed\n"
    "  --connect PORT     after the hello: joins the stream to stdin and stdout\n"
    "  --timeout SECONDS  default 120; then the VM is killed and the exit code is 3\n"
    "  --status           asks for the status before the end\n"
    "  --hold SECONDS     keeps the VM that long after the hello (prints `pid N`)\n";

struct Options {
  std::string vmm, kernel, initramfs, append, serial = "/dev/null", kvm = "/dev/kvm";
  std::string until = "exit";
  uint32_t vcpus = 1;
  uint64_t memory_bytes = MiB(256);
  uint64_t serial_limit_bytes = MiB(1);
  bool has_serial = false;
  bool wants_status = false;
  std::optional<uint32_t> connect_port;
  milliseconds timeout = std::chrono::seconds(120);
  milliseconds hold = milliseconds(0);
  uint64_t next_size = 0;
  std::vector<wire::DiskSpec> disks;
  std::vector<std::string> layer_files;
};

// ID=A,B,C[:ro]
Result<void> AddDisk(Options& options, std::string_view text) {
  wire::DiskSpec disk;
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return Fail(ErrorCode::kInvalidArgument, "--disk needs ID=FILE");
  }
  disk.id = text.substr(0, equals);
  text.remove_prefix(equals + 1);
  disk.is_read_only = text.ends_with(":ro");
  if (disk.is_read_only) {
    text.remove_suffix(3);
  }
  while (!text.empty()) {
    const size_t comma = text.find(',');
    options.layer_files.emplace_back(text.substr(0, comma));
    disk.layers.push_back(disk.layers.empty() ? wire::LayerFormat::kRaw
                                              : wire::LayerFormat::kSparse);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  disk.size_bytes = options.next_size;
  options.disks.push_back(std::move(disk));
  return {};
}

Result<void> SetOption(Options& options, std::string_view name, const std::string& value) {
  if (name == "--vmm") {
    options.vmm = value;
  } else if (name == "--kernel") {
    options.kernel = value;
  } else if (name == "--initramfs") {
    options.initramfs = value;
  } else if (name == "--append") {
    options.append = value;
  } else if (name == "--serial") {
    options.serial = value;
    options.has_serial = true;
  } else if (name == "--kvm") {
    options.kvm = value;
  } else if (name == "--until") {
    options.until = value;
  } else if (name == "--vcpus") {
    options.vcpus = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
  } else if (name == "--connect") {
    options.connect_port = static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10));
  } else if (name == "--memory") {
    SPACE_TRY(options.memory_bytes, ParseSize(value), "--memory");
  } else if (name == "--serial-limit") {
    SPACE_TRY(options.serial_limit_bytes, ParseSize(value), "--serial-limit");
  } else if (name == "--size") {
    SPACE_TRY(options.next_size, ParseSize(value), "--size");
  } else if (name == "--disk") {
    return AddDisk(options, value);
  } else if (name == "--timeout") {
    SPACE_TRY(options.timeout, ParseDuration(value), "--timeout");
  } else if (name == "--hold") {
    SPACE_TRY(options.hold, ParseDuration(value), "--hold");
  } else {
    return Fail(ErrorCode::kInvalidArgument, "unknown option", name);
  }
  return {};
}

Result<Options> Parse(int argc, char** argv) {
  Options options;
  for (int at = 1; at < argc; ++at) {
    const std::string_view name = argv[at];
    if (name == "--status") {
      options.wants_status = true;
      continue;
    }
    if (at + 1 == argc) {
      return Fail(ErrorCode::kInvalidArgument, "option without its value", name);
    }
    SPACE_TRY_VOID(SetOption(options, name, argv[++at]), "read options");
  }
  if (options.vmm.empty() || options.kernel.empty() || options.initramfs.empty()) {
    return Fail(ErrorCode::kInvalidArgument, "--vmm, --kernel and --initramfs are needed");
  }
  return options;
}

// The writable top, made when it is not there or empty.
Result<UniqueFd> OpenTop(const std::string& path, uint64_t size_bytes) {
  UniqueFd top(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!top.valid()) {
    return FailErrno("open", path);
  }
  SPACE_TRY(const uint64_t present, FileSize(top.get()), path);
  if (present == 0) {
    SPACE_TRY_VOID(CreateSparseLayer(top.get(), size_bytes), path);
  }
  return top;
}

// A running space-vmm and the connection to it.
class Driver {
 public:
  explicit Driver(const Options& options) : options_(options) {}
  Result<int> Run();

 private:
  Result<void> Spawn();
  Result<void> Start();
  Result<std::vector<UniqueFd>> OpenFiles(wire::StartRequest& request);
  // Next packet; nullopt at the deadline.
  Result<std::optional<wire::VmmPacket>> Next();
  Result<void> OnHello();
  Result<void> Request(wire::VmmMessage message, const std::vector<int>& fds = {});
  void Relay();
  long MicrosSinceStart() const {
    return static_cast<long>(
        std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begun_)
            .count());
  }

  Options options_;
  std::optional<ChildProcess> child_;
  UniqueFd control_;
  UniqueFd stream_;
  steady_clock::time_point begun_;
  steady_clock::time_point deadline_;
  std::string directory_;
};

Result<void> Driver::Spawn() {
  std::string pattern = "/tmp/vmm-driver.XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) {
    return FailErrno("make directory", pattern);
  }
  directory_ = pattern;
  const std::string path = directory_ + "/control";
  SPACE_TRY(const UniqueFd listener, ListenSeqpacket(path), "listen");
  SPACE_TRY(const UniqueFd kvm, OpenReadWrite(options_.kvm), "open KVM");
  SpawnSpec spec;
  spec.program = options_.vmm;
  spec.fds = {listener.get(), kvm.get()};
  spec.stderr_fd = 2;
  SPACE_TRY(ChildProcess child, ChildProcess::Spawn(spec), "start space-vmm");
  child_.emplace(std::move(child));
  SPACE_TRY(control_, ConnectSeqpacket(path), "connect");
  ::unlink(path.c_str());
  ::rmdir(directory_.c_str());
  return {};
}

Result<std::vector<UniqueFd>> Driver::OpenFiles(wire::StartRequest& request) {
  std::vector<UniqueFd> fds;
  SPACE_TRY(fds.emplace_back(), OpenReadOnly(options_.kernel), "open kernel");
  SPACE_TRY(fds.emplace_back(), OpenReadOnly(options_.initramfs), "open initramfs");
  size_t file = 0;
  for (wire::DiskSpec& disk : request.disks) {
    for (size_t at = 0; at < disk.layers.size(); ++at, ++file) {
      const bool is_top = !disk.is_read_only && at + 1 == disk.layers.size();
      const std::string& path = options_.layer_files[file];
      SPACE_TRY(UniqueFd layer, is_top ? OpenTop(path, disk.size_bytes) : OpenReadOnly(path),
                "open layer");
      if (at == 0 && disk.size_bytes == 0) {
        SPACE_TRY(disk.size_bytes, FileSize(layer.get()), "size of layer");
      }
      fds.push_back(std::move(layer));
    }
  }
  UniqueFd serial(::open(options_.serial.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!serial.valid()) {
    return FailErrno("open serial log", options_.serial);
  }
  fds.push_back(std::move(serial));
  SPACE_TRY(fds.emplace_back(), CreateMemfd("exit-record"), "exit record");
  return fds;
}

Result<void> Driver::Start() {
  wire::StartRequest request;
  request.vcpus = options_.vcpus;
  request.memory_bytes = options_.memory_bytes;
  request.command_line = options_.append;
  request.disks = options_.disks;
  request.serial_limit_bytes = options_.has_serial ? options_.serial_limit_bytes : 0;
  SPACE_TRY(const std::vector<UniqueFd> owned, OpenFiles(request), "start");
  std::vector<int> fds;
  for (const UniqueFd& fd : owned) {
    fds.push_back(fd.get());
  }
  return Request(std::move(request), fds);
}

Result<void> Driver::Request(wire::VmmMessage message, const std::vector<int>& fds) {
  return SendPacket(control_.get(), wire::Encode(wire::VmmPacket{1, std::move(message)}), fds);
}

Result<std::optional<wire::VmmPacket>> Driver::Next() {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline_ - steady_clock::now());
  pollfd poll_fd = {.fd = control_.get(), .events = POLLIN, .revents = 0};
  if (left.count() <= 0 || ::poll(&poll_fd, 1, static_cast<int>(left.count())) <= 0) {
    return std::optional<wire::VmmPacket>();
  }
  SPACE_TRY(const Packet packet, ReceivePacket(control_.get()), "receive");
  if (packet.bytes.empty()) {
    return Fail(ErrorCode::kUnavailable, "space-vmm closed the control socket");
  }
  SPACE_TRY(wire::VmmPacket decoded, wire::DecodeVmmPacket(packet.bytes), "decode");
  return std::optional<wire::VmmPacket>(std::move(decoded));
}

Result<void> Driver::OnHello() {
  if (options_.hold.count() > 0) {
    deadline_ = steady_clock::now() + options_.hold;
  }
  if (options_.connect_port) {
    SPACE_TRY(auto pair, MakeSocketPair(SOCK_STREAM), "make stream");
    SPACE_TRY_VOID(Request(wire::ConnectRequest{*options_.connect_port}, {pair.second.get()}),
                   "connect");
    stream_ = std::move(pair.first);
  }
  return {};
}

// stdin to the guest and back until the guest closes.
void Driver::Relay() {
  std::vector<char> buffer(1 << 16);
  pollfd fds[2] = {{.fd = 0, .events = POLLIN, .revents = 0},
                   {.fd = stream_.get(), .events = POLLIN, .revents = 0}};
  while (steady_clock::now() < deadline_) {
    if (::poll(fds, 2, 1000) < 0) {
      return;
    }
    if ((fds[0].revents & (POLLIN | POLLHUP)) != 0) {
      const ssize_t got = ::read(0, buffer.data(), buffer.size());
      if (got <= 0) {
        ::shutdown(stream_.get(), SHUT_WR);
        fds[0].fd = -1;
      } else if (!WriteFull(stream_.get(), {buffer.data(), static_cast<size_t>(got)})) {
        return;
      }
    }
    if ((fds[1].revents & (POLLIN | POLLHUP)) != 0) {
      const ssize_t got = ::read(stream_.get(), buffer.data(), buffer.size());
      if (got <= 0 || !WriteFull(1, {buffer.data(), static_cast<size_t>(got)})) {
        return;
      }
    }
  }
}

Result<int> Driver::Run() {
  deadline_ = steady_clock::now() + options_.timeout;
  begun_ = steady_clock::now();
  SPACE_TRY_VOID(Spawn(), "spawn");
  std::printf("pid %d\n", child_->pid());
  SPACE_TRY_VOID(Start(), "start");
  bool is_killed = false;
  bool is_started = false;
  const auto kill = [&] {
    is_killed = true;
    deadline_ = steady_clock::now() + std::chrono::seconds(10);
    return Request(wire::KillRequest{});
  };
  for (;;) {
    std::fflush(stdout);
    SPACE_TRY(const std::optional<wire::VmmPacket> packet, Next(), "wait for space-vmm");
    if (!packet) {
      if (is_killed) {
        return Fail(ErrorCode::kTimeout, "space-vmm did not end after a kill request");
      }
      std::printf("%s\n", options_.hold.count() > 0 ? "held" : "timeout");
      SPACE_TRY_VOID(kill(), "kill");
      continue;
    }
    if (const auto* exit = std::get_if<wire::ExitEvent>(&packet->message)) {
      std::printf("exit %s %s\n", std::string(wire::ExitReasonName(exit->exit.reason)).c_str(),
                  exit->exit.detail.c_str());
      const bool is_timeout = is_killed && options_.until == "exit" && options_.hold.count() == 0 &&
                              !options_.connect_port;
      return is_timeout ? 3 : 0;
    }
    if (std::get_if<wire::HelloEvent>(&packet->message) != nullptr) {
      std::printf("hello %ld us\n", MicrosSinceStart());
      SPACE_TRY_VOID(OnHello(), "after hello");
      if (options_.wants_status) {
        SPACE_TRY_VOID(Request(wire::StatusRequest{}), "status");
      } else if (options_.until == "hello" && options_.hold.count() == 0 && !stream_.valid()) {
        SPACE_TRY_VOID(kill(), "kill");
      }
    } else if (const auto* status = std::get_if<wire::StatusReply>(&packet->message)) {
      std::printf("status state=%d faults=%llu start_to_hello_us=%llu\n",
                  static_cast<int>(status->state),
                  static_cast<unsigned long long>(status->guest_faults),
                  static_cast<unsigned long long>(status->start_to_hello_us));
      if (options_.until == "hello" && options_.hold.count() == 0) {
        SPACE_TRY_VOID(kill(), "kill");
      }
    } else if (const auto* reply = std::get_if<wire::Reply>(&packet->message)) {
      if (!reply->is_ok) {
        return Fail(reply->code, "space-vmm refuses: " + reply->message);
      }
      if (!is_started) {
        is_started = true;
        std::printf("started %ld us\n", MicrosSinceStart());
      } else if (stream_.valid() && !is_killed) {
        std::printf("connected %u\n", *options_.connect_port);
        std::fflush(stdout);
        Relay();
        SPACE_TRY_VOID(kill(), "kill");
      }
    }
  }
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  const auto options = space::Parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "vmm-driver: %s\n%s", options.error().message().c_str(),
                 space::kHelp.data());
    return 2;
  }
  const auto code = space::Driver(*options).Run();
  if (!code) {
    std::fprintf(stderr, "vmm-driver: %s\n", code.error().message().c_str());
    return 1;
  }
  return *code;
}
