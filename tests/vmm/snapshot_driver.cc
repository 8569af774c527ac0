// snapshot-driver: boots a guest under space-vmm, snapshots it while it runs, kills it, and
// restores it from the files again and again, asking it each time over vsock. Prints one line per
// step with its times; exits 0 when every answer came.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
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

using std::chrono::steady_clock;

constexpr std::string_view kHelp =
    "usage: snapshot-driver VMM KERNEL INITRAMFS DISK VCPUS MEMORY PORT ROUNDS [APPEND]\n"
    "  DISK     raw image, or - for none\n"
    "  PORT     of the guest's vsock: 49983 is asked by GET /health, others must echo\n";

// All waits; a guest in an emulated host boots in 10 to 60 s.
constexpr std::chrono::seconds kPatience(300);

constexpr long kMaxAnswerUs = 30'000'000;

struct Options {
  std::string vmm, kernel, initramfs, disk, append;
  uint32_t vcpus = 1;
  uint64_t memory_bytes = 0;
  uint32_t port = 0;
  int rounds = 1;
};

long Micros(steady_clock::time_point begun) {
  return static_cast<long>(
      std::chrono::duration_cast<std::chrono::microseconds>(steady_clock::now() - begun).count());
}

// One space-vmm process and the connection to it.
class Vmm {
 public:
  static Result<std::unique_ptr<Vmm>> Spawn(const std::string& program) {
    std::string directory = "/tmp/snapshot-driver.XXXXXX";
    if (::mkdtemp(directory.data()) == nullptr) {
      return FailErrno("make directory", directory);
    }
    const std::string path = directory + "/control";
    SPACE_TRY(const UniqueFd listener, ListenSeqpacket(path), "listen");
    SPACE_TRY(const UniqueFd kvm, OpenReadWrite("/dev/kvm"), "open KVM");
    SpawnSpec spec;
    spec.program = program;
    spec.fds = {listener.get(), kvm.get()};
    spec.stderr_fd = 2;
    SPACE_TRY(ChildProcess child, ChildProcess::Spawn(spec), "start space-vmm");
    auto vmm = std::unique_ptr<Vmm>(new Vmm(std::move(child)));
    SPACE_TRY(vmm->control_, ConnectSeqpacket(path), "connect");
    ::unlink(path.c_str());
    ::rmdir(directory.c_str());
    return vmm;
  }
  Result<void> Send(wire::VmmMessage message, const std::vector<int>& fds = {}) {
    return SendPacket(control_.get(), wire::Encode(wire::VmmPacket{1, std::move(message)}), fds);
  }
  // The next message of type T; others are passed over, but for an exit and a refusal.
  template <class T>
  Result<T> Next() {
    for (;;) {
      pollfd poll_fd = {.fd = control_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&poll_fd, 1, static_cast<int>(kPatience.count()) * 1000) != 1) {
        return Fail(ErrorCode::kTimeout, "space-vmm says nothing");
      }
      SPACE_TRY(const Packet packet, ReceivePacket(control_.get()), "receive");
      SPACE_TRY(wire::VmmPacket decoded, wire::DecodeVmmPacket(packet.bytes), "decode");
      if (auto* wanted = std::get_if<T>(&decoded.message)) {
        return std::move(*wanted);
      }
      if (const auto* exit = std::get_if<wire::ExitEvent>(&decoded.message)) {
        return Fail(ErrorCode::kUnavailable, wire::ExitReasonName(exit->exit.reason),
                    exit->exit.detail);
      }
      const auto* reply = std::get_if<wire::Reply>(&decoded.message);
      if (reply != nullptr && !reply->is_ok) {
        return Fail(reply->code, "space-vmm refuses: " + reply->message);
      }
    }
  }
  // Processor time of the process so far, from /proc.
  long CpuMillis() const {
    const auto text = ReadFile("/proc/" + std::to_string(child_.pid()) + "/stat");
    const size_t name_end = text ? text->rfind(')') : std::string::npos;
    long user = 0;
    long system = 0;
    if (name_end == std::string::npos ||
        std::sscanf(text->c_str() + name_end,
                    ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system) != 2) {
      return -1;
    }
    return (user + system) * 1000 / ::sysconf(_SC_CLK_TCK);
  }
  Result<void> Ask(wire::VmmMessage message, const std::vector<int>& fds = {}) {
    SPACE_TRY_VOID(Send(std::move(message), fds), "ask");
    SPACE_TRY(const wire::Reply reply, Next<wire::Reply>(), "ask");
    return reply.is_ok ? Result<void>() : Fail(reply.code, reply.message);
  }

 private:
  explicit Vmm(ChildProcess child) : child_(std::move(child)) {}
  ChildProcess child_;
  UniqueFd control_;
};

Result<UniqueFd> Open(Vmm& vmm, uint32_t port) {
  SPACE_TRY(auto pair, MakeSocketPair(SOCK_STREAM), "make stream");
  SPACE_TRY_VOID(vmm.Ask(wire::ConnectRequest{port}, {pair.second.get()}), "connect");
  return std::move(pair.first);
}

// One question and its whole or beginning answer.
Result<std::string> Talk(const UniqueFd& stream, uint32_t port) {
  const std::string question =
      port == 49983 ? "GET /health HTTP/1.1\r\nHost: guest\r\n\r\n" : "marco";
  SPACE_TRY_VOID(WriteFull(stream.get(), question), "ask guest");
  pollfd poll_fd = {.fd = stream.get(), .events = POLLIN, .revents = 0};
  if (::poll(&poll_fd, 1, static_cast<int>(kPatience.count()) * 1000) != 1) {
    return Fail(ErrorCode::kTimeout, "guest does not answer");
  }
  std::string answer(4096, '\0');
  const ssize_t got = ::read(stream.get(), answer.data(), answer.size());
  if (got <= 0) {
    return Fail(ErrorCode::kUnavailable, "guest closed the stream");
  }
  answer.resize(static_cast<size_t>(got));
  const bool is_right =
      port == 49983 ? answer.starts_with("HTTP/1.1 2") : answer.starts_with(question);
  return is_right ? Result<std::string>(answer.substr(0, answer.find('\r')))
                  : Fail(ErrorCode::kInternal, "wrong answer", answer);
}

Result<std::string> Question(Vmm& vmm, uint32_t port) {
  SPACE_TRY(const UniqueFd stream, Open(vmm, port), "open stream");
  return Talk(stream, port);
}

Result<UniqueFd> NewLayer(uint64_t bytes) {
  SPACE_TRY(UniqueFd fd, CreateMemfd("layer"), "layer");
  SPACE_TRY_VOID(CreateSparseLayer(fd.get(), bytes), "layer");
  return fd;
}

class Driver {
 public:
  explicit Driver(Options options) : options_(std::move(options)) {}

  Result<void> Run() {
    SPACE_TRY_VOID(Boot(), "boot");
    SPACE_TRY_VOID(Snapshot(), "snapshot");
    for (int round = 0; round < options_.rounds; ++round) {
      SPACE_TRY_VOID(Restore(round), "restore " + std::to_string(round));
    }
    std::sort(answered_us_.begin(), answered_us_.end());
    std::printf("restored %zu times: request to answer min %ld median %ld max %ld us\n",
                answered_us_.size(), answered_us_.front(), answered_us_[answered_us_.size() / 2],
                answered_us_.back());
    return {};
  }

 private:
  bool has_disk() const { return options_.disk != "-"; }

  Result<void> Boot() {
    const auto begun = steady_clock::now();
    SPACE_TRY(vmm_, Vmm::Spawn(options_.vmm), "spawn");
    wire::StartRequest request;
    request.vcpus = options_.vcpus;
    request.memory_bytes = options_.memory_bytes;
    request.command_line = options_.append;
    request.serial_limit_bytes = MiB(1);
    std::vector<UniqueFd> files;
    SPACE_TRY(files.emplace_back(), OpenReadOnly(options_.kernel), "kernel");
    SPACE_TRY(files.emplace_back(), OpenReadOnly(options_.initramfs), "initramfs");
    if (has_disk()) {
      SPACE_TRY(disk_layers_.emplace_back(), OpenReadOnly(options_.disk), "disk");
      SPACE_TRY(disk_bytes_, FileSize(disk_layers_.front().get()), "disk");
      SPACE_TRY(disk_layers_.emplace_back(), NewLayer(disk_bytes_), "disk");
      request.disks = {Disk()};
    }
    SPACE_TRY(serial_, CreateMemfd("serial"), "serial");
    SPACE_TRY(const UniqueFd record, CreateMemfd("record"), "record");
    std::vector<int> fds{files[0].get(), files[1].get()};
    AddDisk(fds);
    fds.push_back(serial_.get());
    fds.push_back(record.get());
    SPACE_TRY_VOID(vmm_->Ask(request, fds), "start");
    const Result<wire::HelloEvent> hello = vmm_->Next<wire::HelloEvent>();
    if (!hello) {
      PrintSerial();
      return Fail(hello.error());
    }
    SPACE_TRY(const std::string answer, Question(*vmm_, options_.port), "first question");
    std::printf("booted with %u vCPUs, answered '%s' after %ld ms\n", options_.vcpus,
                answer.c_str(), Micros(begun) / 1000);
    return {};
  }

  // Of a guest that runs and has a stream open, which must outlive it.
  Result<void> Snapshot() {
    SPACE_TRY(UniqueFd stream, Open(*vmm_, options_.port), "open stream");
    SPACE_TRY(state_, CreateMemfd("state"), "state");
    SPACE_TRY(memory_, NewLayer(options_.memory_bytes), "memory");
    std::vector<int> fds{state_.get(), memory_.get()};
    UniqueFd top;
    if (has_disk()) {
      SPACE_TRY(top, NewLayer(disk_bytes_), "top");
      fds.push_back(top.get());
    }
    SPACE_TRY_VOID(vmm_->Send(wire::SnapshotRequest{}, fds), "ask");
    SPACE_TRY(const wire::SnapshotReply reply, vmm_->Next<wire::SnapshotReply>(), "ask");
    if (!reply.error.empty()) {
      return Fail(ErrorCode::kInternal, reply.error);
    }
    Print("snapshot", reply);
    SPACE_TRY_VOID(Talk(stream, options_.port), "the stream that was open");
    stream = UniqueFd();  // the test guest serves one at a time
    SPACE_TRY_VOID(Question(*vmm_, options_.port), "the source after its snapshot");
    // Paused for a while, then asked again.
    SPACE_TRY_VOID(vmm_->Ask(wire::PauseRequest{}), "pause");
    ::usleep(300'000);
    const auto begun = steady_clock::now();
    SPACE_TRY_VOID(vmm_->Ask(wire::ResumeRequest{}), "resume");
    SPACE_TRY_VOID(Question(*vmm_, options_.port), "the source after its pause");
    std::printf("resumed and answered after %ld us\n", Micros(begun));
    vmm_.reset();
    return {};
  }

  Result<void> Restore(int round) {
    SPACE_TRY(vmm_, Vmm::Spawn(options_.vmm), "spawn");
    SPACE_TRY_VOID(vmm_->Send(wire::StatusRequest{}), "wait for space-vmm");
    SPACE_TRY_VOID(vmm_->Next<wire::StatusReply>(), "wait for space-vmm");
    wire::RestoreRequest request;
    request.memory_layers = 1;
    request.serial_limit_bytes = MiB(1);
    request.has_working_set = working_set_.valid();
    std::vector<int> fds{state_.get(), memory_.get()};
    UniqueFd top;
    if (has_disk()) {
      request.disks = {Disk()};
      request.disks[0].layers.push_back(wire::LayerFormat::kSparse);
      SPACE_TRY(top, NewLayer(disk_bytes_), "top");
      AddDisk(fds);
      fds.push_back(top.get());
    }
    SPACE_TRY(serial_, CreateMemfd("serial"), "serial");
    SPACE_TRY(const UniqueFd record, CreateMemfd("record"), "record");
    fds.push_back(serial_.get());
    fds.push_back(record.get());
    if (request.has_working_set) {
      fds.push_back(working_set_.get());
    }
    const auto begun = steady_clock::now();
    SPACE_TRY_VOID(vmm_->Ask(request, fds), "restore");
    const long restored = Micros(begun);
    SPACE_TRY_VOID(vmm_->Ask(wire::ResumeRequest{}), "resume");
    const long resumed = Micros(begun);
    Result<std::string> answer = Question(*vmm_, options_.port);
    int tries = 1;
    // A connection is given up after 2 s, which an emulated host may need for its first steps.
    for (; !answer && Micros(begun) < kMaxAnswerUs; ++tries) {
      answer = Question(*vmm_, options_.port);
    }
    if (!answer) {
      PrintSerial();
      return Fail(answer.error());
    }
    answered_us_.push_back(Micros(begun));
    const long cpu = vmm_->CpuMillis();
    const auto again = steady_clock::now();
    SPACE_TRY_VOID(Question(*vmm_, options_.port), "second question");
    std::printf(
        "restore %d%s: restored %ld resumed %ld answered %ld us, %d tries, VMM used %ld ms; "
        "again %ld us\n",
        round, request.has_working_set ? " with working set" : "", restored, resumed,
        answered_us_.back(), tries, cpu, Micros(again));
    std::fflush(stdout);
    if (round == 0 && std::getenv("NO_WORKING_SET") == nullptr) {
      SPACE_TRY(working_set_, CreateMemfd("working-set"), "working set");
      SPACE_TRY_VOID(vmm_->Ask(wire::WorkingSetRequest{}, {working_set_.get()}), "working set");
      SPACE_TRY_VOID(SnapshotAgain(), "snapshot of the restored");
    }
    vmm_.reset();
    return {};
  }

  // Of a restored machine, onto the layer that it stands on.
  Result<void> SnapshotAgain() {
    SPACE_TRY(const UniqueFd state, CreateMemfd("state"), "state");
    SPACE_TRY(const UniqueFd memory, NewLayer(options_.memory_bytes), "memory");
    std::vector<int> fds{state.get(), memory.get()};
    UniqueFd top;
    if (has_disk()) {
      SPACE_TRY(top, NewLayer(disk_bytes_), "top");
      fds.push_back(top.get());
    }
    wire::SnapshotRequest request;
    request.kept_memory_layers = 1;
    SPACE_TRY_VOID(vmm_->Send(request, fds), "ask");
    SPACE_TRY(const wire::SnapshotReply reply, vmm_->Next<wire::SnapshotReply>(), "ask");
    Print("snapshot of the restored", reply);
    SPACE_TRY_VOID(Question(*vmm_, options_.port), "the restored after its snapshot");
    return reply.error.empty() ? Result<void>() : Fail(ErrorCode::kInternal, reply.error);
  }

  static void Print(const char* what, const wire::SnapshotReply& reply) {
    const auto value = [](uint64_t number) { return static_cast<unsigned long long>(number); };
    std::printf(
        "%s: pause %llu us (park %llu scan %llu mark %llu fork %llu resume %llu), write %llu us, "
        "%llu dirty %llu written pages, %u mappings\n",
        what, value(reply.pause_us), value(reply.park_us), value(reply.scan_us),
        value(reply.mark_us), value(reply.fork_us), value(reply.resume_us), value(reply.write_us),
        value(reply.dirty_pages), value(reply.written_pages), reply.mappings);
  }
  wire::DiskSpec Disk() const {
    return {"root", {wire::LayerFormat::kRaw, wire::LayerFormat::kSparse}, false, disk_bytes_};
  }
  void AddDisk(std::vector<int>& fds) const {
    for (const UniqueFd& layer : disk_layers_) {
      fds.push_back(layer.get());
    }
  }
  void PrintSerial() const {
    std::string text(8192, '\0');
    const Result<uint64_t> size = FileSize(serial_.get());
    const uint64_t from = size && *size > text.size() ? *size - text.size() : 0;
    const ssize_t got = ::pread(serial_.get(), text.data(), text.size(), static_cast<off_t>(from));
    std::printf("serial log ends:\n%.*s\n", static_cast<int>(got < 0 ? 0 : got), text.data());
  }

  Options options_;
  std::unique_ptr<Vmm> vmm_;
  std::vector<UniqueFd> disk_layers_;
  uint64_t disk_bytes_ = 0;
  UniqueFd serial_;
  UniqueFd state_;
  UniqueFd memory_;
  UniqueFd working_set_;
  std::vector<long> answered_us_;
};

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  if (argc < 9) {
    std::fputs(space::kHelp.data(), stderr);
    return 2;
  }
  space::Options options;
  options.vmm = argv[1];
  options.kernel = argv[2];
  options.initramfs = argv[3];
  options.disk = argv[4];
  options.vcpus = static_cast<uint32_t>(std::strtoul(argv[5], nullptr, 10));
  options.memory_bytes = space::ParseSize(argv[6]).value_or(0);
  options.port = static_cast<uint32_t>(std::strtoul(argv[7], nullptr, 10));
  options.rounds = std::atoi(argv[8]);
  options.append = argc > 9 ? argv[9] : "";
  const auto ran = space::Driver(std::move(options)).Run();
  std::fflush(stdout);
  if (!ran) {
    std::printf("FAILED %s\n", ran.error().message().c_str());
    return 1;
  }
  return 0;
}
