#include "kvm/probe.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string_view>

#include "kvm/probe_guest.h"
#include "kvm/system.h"

namespace space {
namespace {

using std::chrono::steady_clock;

// The guest's loop is watched for this long; then the verdict stands.
constexpr std::chrono::milliseconds kLoopBudget(60);
// From then on the timer interrupts the guest, whatever it does.
constexpr long kDeadlineNs = 600'000'000;
constexpr int kMaxExits = 20'000;

constexpr std::array<std::string_view, 5> kStepNames = {"entry", "int3", "xsave", "cmpxchg16b",
                                                        "loop"};

// Interrupts this thread's KVM_RUN with a signal that is otherwise blocked; destroyed, it leaves
// signal mask and pending signals as they were.
class Deadline {
 public:
  Deadline() {
    ::sigemptyset(&set_);
    ::sigaddset(&set_, signal());
    armed_ = ::pthread_sigmask(SIG_BLOCK, &set_, &old_) == 0;
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal();
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    armed_ = armed_ && ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const itimerspec when = {.it_interval = {0, 20'000'000}, .it_value = {0, kDeadlineNs}};
    armed_ = armed_ && ::timer_settime(timer_, 0, &when, nullptr) == 0;
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;
  ~Deadline() {
    if (armed_) {
      ::timer_delete(timer_);
    }
    const timespec none = {};
    while (::sigtimedwait(&set_, nullptr, &none) > 0) {
    }
    ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
  }
  bool is_armed() const { return armed_; }
  static int signal() { return SIGRTMIN + 5; }

 private:
  sigset_t set_ = {};
  sigset_t old_ = {};
  timer_t timer_ = {};
  bool armed_ = false;
};

double NsPerRound(steady_clock::duration spent, uint64_t chunks) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
  return static_cast<double>(ns) / static_cast<double>(chunks * kvm::kLoopCount);
}

// The quickest of a few: another process may have had the processor meanwhile.
double MeasureHostLoop() {
  constexpr int kTries = 20;
  double best = 0;
  for (int tried = 0; tried < kTries; ++tried) {
    const auto begun = steady_clock::now();
    kvm::RunLoopOnHost();
    const double ns = NsPerRound(steady_clock::now() - begun, 1);
    best = tried == 0 ? ns : std::min(best, ns);
  }
  return best;
}

std::string Decimal(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

// Follows the guest through its steps.
class Probe {
 public:
  Result<void> Run(const UniqueFd& kvm);
  KvmVerdict Judge(const Result<void>& ran) const;

 private:
  enum class Next { kContinue, kStop };
  Next OnStep(uint8_t value);
  Result<void> Follow(kvm::Vcpu& vcpu);

  size_t step_ = 0;  // index into kStepNames of what the guest does now
  bool is_wrong_ = false;
  uint64_t chunks_ = 0;
  steady_clock::time_point loop_begun_;
  steady_clock::time_point chunk_begun_;
  double best_ns_ = 0;
};

Result<void> Probe::Run(const UniqueFd& fd) {
  SPACE_TRY(UniqueFd own, fd.Duplicate(), "probe KVM");
  SPACE_TRY(const kvm::System system, kvm::System::Create(std::move(own)), "probe KVM");
  SPACE_TRY(const GuestMemory memory, GuestMemory::Create(kvm::kProbeMemoryBytes), "probe KVM");
  SPACE_TRY(const kvm::Vm vm, system.CreateVm(), "probe KVM");
  SPACE_TRY_VOID(vm.SetMemory(memory), "probe KVM");
  SPACE_TRY(kvm::Vcpu vcpu, vm.CreateVcpu(0), "probe KVM");
  SPACE_TRY_VOID(vcpu.SetCpuid(system.supported_cpuid()), "probe KVM");
  SPACE_TRY_VOID(kvm::PrepareProbeGuest(memory, vcpu), "probe KVM");
  const Deadline deadline;
  if (!deadline.is_armed()) {
    return Fail(ErrorCode::kInternal, "cannot arm the probe's timer");
  }
  SPACE_TRY_VOID(vcpu.SetKickSignal(Deadline::signal()), "probe KVM");
  return Follow(vcpu);
}

Result<void> Probe::Follow(kvm::Vcpu& vcpu) {
  for (int exits = 0; exits < kMaxExits; ++exits) {
    SPACE_TRY(const kvm::VcpuExit exit, vcpu.Run(), kStepNames[step_]);
    if (const auto* port = std::get_if<kvm::PortExit>(&exit)) {
      if (port->port != kvm::kStepPort || !port->is_write || port->data.empty()) {
        return Fail(ErrorCode::kInternal, "guest went astray in step", kStepNames[step_]);
      }
      if (OnStep(static_cast<uint8_t>(port->data[0])) == Next::kStop) {
        return {};
      }
    } else if (const auto* failure = std::get_if<kvm::FailureExit>(&exit)) {
      return Fail(ErrorCode::kUnimplemented, std::string(kStepNames[step_]) + ": " + failure->text);
    } else if (std::holds_alternative<kvm::InterruptedExit>(exit)) {
      return Fail(ErrorCode::kTimeout, "guest did not finish in 0.6 s; it was in step",
                  kStepNames[step_]);
    } else {
      return Fail(ErrorCode::kUnimplemented, "guest died in step", kStepNames[step_]);
    }
  }
  return {};
}

Probe::Next Probe::OnStep(uint8_t value) {
  const auto now = steady_clock::now();
  if (value == kvm::kWrongResult) {
    is_wrong_ = true;
    return Next::kStop;
  }
  if (value < kvm::kLoopChunk) {
    step_ = value;
    loop_begun_ = now;
  } else {
    const double ns = NsPerRound(now - chunk_begun_, 1);
    best_ns_ = chunks_ == 0 ? ns : std::min(best_ns_, ns);
    ++chunks_;
    if (now - loop_begun_ > kLoopBudget) {
      return Next::kStop;
    }
  }
  chunk_begun_ = steady_clock::now();
  return Next::kContinue;
}

KvmVerdict Probe::Judge(const Result<void>& ran) const {
  KvmVerdict verdict;
  verdict.host_loop_ns = MeasureHostLoop();
  verdict.guest_loop_ns = best_ns_;
  const bool is_looping = step_ + 1 == kStepNames.size();
  for (size_t at = 1; at < kStepNames.size(); ++at) {
    const bool is_done = at < step_ || (at == step_ && ran && !is_wrong_);
    verdict.details += at == 1 ? "" : "; ";
    verdict.details += std::string(kStepNames[at]) + ": ";
    verdict.details += is_done ? "ok" : at == step_ ? "failed" : "not reached";
  }
  if (is_wrong_) {
    verdict.reason = "guest kernel code gives a wrong result for " + std::string(kStepNames[step_]);
    return verdict;
  }
  // A loop that the deadline cut short has shown its speed all the same.
  if (!ran && !(is_looping && ran.error().code() == ErrorCode::kTimeout)) {
    verdict.reason = "KVM cannot run Linux: " + ran.error().message();
    return verdict;
  }
  const double ratio = chunks_ == 0 ? 1e9 : best_ns_ / verdict.host_loop_ns;
  verdict.is_usable = ratio <= KvmVerdict::kSlowestUsableRatio;
  if (chunks_ == 0) {
    verdict.reason = "guest kernel code is interpreted: a short loop did not end in 0.6 s";
    return verdict;
  }
  verdict.reason =
      verdict.is_usable ? "KVM runs guest kernel code " : "guest kernel code is too slow: ";
  verdict.reason += "at " + Decimal(ratio) + " times the host's loop time (" + Decimal(best_ns_) +
                    " against " + Decimal(verdict.host_loop_ns) + " ns a round)";
  return verdict;
}

}  // namespace

KvmVerdict ProbeKvm(const UniqueFd& kvm) {
  Probe probe;
  const Result<void> ran = probe.Run(kvm);
  return probe.Judge(ran);
}

KvmVerdict ProbeKvmAt(const std::string& path) {
  const Result<UniqueFd> kvm = OpenReadWrite(path);
  if (!kvm) {
    KvmVerdict verdict;
    verdict.reason = kvm.error().message();
    return verdict;
  }
  return ProbeKvm(*kvm);
}

}  // namespace space
