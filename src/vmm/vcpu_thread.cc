#include "vmm/vcpu_thread.h"

#include <signal.h>
#include <sys/prctl.h>

#include <cerrno>
#include <string>

namespace space {
namespace {

// Takes a kick that has served its purpose off the queue, so that the next Run is not cut short.
void ConsumeKick() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, VcpuThread::KickSignal());
  const timespec no_wait = {};
  while (::sigtimedwait(&set, nullptr, &no_wait) > 0) {
  }
}

}  // namespace

int VcpuThread::KickSignal() { return SIGRTMIN; }

VcpuThread::VcpuThread(uint32_t id, kvm::Vcpu vcpu, Bus& mmio, Bus& ports, ExitBox& exit,
                       Start start)
    : id_(id),
      vcpu_(std::move(vcpu)),
      mmio_(&mmio),
      ports_(&ports),
      exit_(&exit),
      wish_(start == Start::kParked ? Wish::kPark : Wish::kRun),
      thread_([this] { Run(); }) {}

VcpuThread::~VcpuThread() {
  Stop();
  Join();
}

void VcpuThread::SetWish(Wish wish) {
  {
    const std::lock_guard lock(mutex_);
    // Whoever is to stop does not go on for a late Unpark.
    if (wish_.load(std::memory_order_relaxed) != Wish::kStop) {
      wish_.store(wish, std::memory_order_release);
    }
  }
  changed_.notify_all();
}

void VcpuThread::Park() {
  SetWish(Wish::kPark);
  ::pthread_kill(thread_.native_handle(), KickSignal());
}

void VcpuThread::WaitParked() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_parked_ || has_ended_; });
}

void VcpuThread::Unpark() { SetWish(Wish::kRun); }

void VcpuThread::Stop() {
  SetWish(Wish::kStop);
  if (thread_.joinable()) {
    ::pthread_kill(thread_.native_handle(), KickSignal());
  }
}

void VcpuThread::Join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void VcpuThread::Run() {
  const std::string name = "vcpu " + std::to_string(id_);
  ::prctl(PR_SET_NAME, name.c_str());
  const Result<void> kickable = vcpu_.SetKickSignal(KickSignal());
  if (!kickable) {
    exit_->Report(wire::ExitReason::kInternalError, kickable.error().message());
  }
  bool goes_on = kickable.has_value();
  while (goes_on) {
    const Wish wish = wish_.load(std::memory_order_acquire);
    if (wish == Wish::kStop) {
      break;
    }
    if (wish == Wish::kPark) {
      StandStill();
    } else {
      goes_on = Step();
    }
  }
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  changed_.notify_all();
}

void VcpuThread::StandStill() {
  // KVM finishes the instruction of the last port or MMIO access on the next entry; before that the
  // registers are those of its beginning. One access may take several rounds.
  vcpu_.SetImmediateExit(true);
  was_interrupted_ = false;
  bool goes_on = true;
  while (goes_on && !was_interrupted_ && wish_.load(std::memory_order_acquire) != Wish::kStop) {
    goes_on = Step();
  }
  vcpu_.SetImmediateExit(false);
  std::unique_lock lock(mutex_);
  is_parked_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return wish_.load(std::memory_order_relaxed) != Wish::kPark; });
  is_parked_ = false;
  if (!goes_on) {
    wish_.store(Wish::kStop, std::memory_order_release);
  }
}

bool VcpuThread::Step() {
  const Result<kvm::VcpuExit> exit = vcpu_.Run();
  exits_.fetch_add(1, std::memory_order_relaxed);
  if (!exit) {
    // KVM cannot get at a page of the guest's memory.
    const bool is_fault = exit.error().system_errno() == EFAULT;
    exit_->Report(is_fault ? wire::ExitReason::kLayerLost : wire::ExitReason::kInternalError,
                  "vcpu " + std::to_string(id_) + ": " + exit.error().message());
    return false;
  }
  return Handle(*exit);
}

bool VcpuThread::Handle(const kvm::VcpuExit& exit) {
  if (const auto* mmio = std::get_if<kvm::MmioExit>(&exit)) {
    if (mmio->is_write) {
      mmio_->Write(mmio->at.value, mmio->data);
    } else {
      mmio_->Read(mmio->at.value, mmio->data);
    }
    return true;
  }
  if (const auto* port = std::get_if<kvm::PortExit>(&exit)) {
    HandlePort(*port);
    return true;
  }
  if (std::holds_alternative<kvm::InterruptedExit>(exit)) {
    ConsumeKick();
    was_interrupted_ = true;
    return true;
  }
  if (std::holds_alternative<kvm::TripleFaultExit>(exit)) {
    exit_->Report(wire::ExitReason::kTripleFault, "vCPU " + std::to_string(id_));
  } else if (std::holds_alternative<kvm::ResetExit>(exit)) {
    exit_->Report(wire::ExitReason::kGuestReset);
  } else if (const auto* failure = std::get_if<kvm::FailureExit>(&exit)) {
    exit_->Report(wire::ExitReason::kInternalError,
                  "vCPU " + std::to_string(id_) + ": " + failure->text);
  } else {
    exit_->Report(wire::ExitReason::kInternalError, "vCPU halted outside KVM");
  }
  return false;
}

void VcpuThread::HandlePort(const kvm::PortExit& access) {
  for (uint32_t at = 0; at < access.count; ++at) {
    const std::span<std::byte> data =
        access.data.subspan(size_t{at} * access.size_bytes, access.size_bytes);
    if (access.is_write) {
      ports_->Write(access.port, data);
    } else {
      ports_->Read(access.port, data);
    }
  }
}

}  // namespace space
