#include "vmm/vcpu_thread.h"

#include <signal.h>
#include <sys/prctl.h>

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

VcpuThread::VcpuThread(uint32_t id, kvm::Vcpu vcpu, Bus& mmio, Bus& ports, ExitBox& exit)
    : id_(id), vcpu_(std::move(vcpu)), mmio_(&mmio), ports_(&ports), exit_(&exit), thread_([this] {
        Run();
      }) {}

VcpuThread::~VcpuThread() {
  Stop();
  Join();
}

void VcpuThread::Stop() {
  is_stopping_.store(true, std::memory_order_release);
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
    return;
  }
  while (!is_stopping_.load(std::memory_order_acquire)) {
    const Result<kvm::VcpuExit> exit = vcpu_.Run();
    exits_.fetch_add(1, std::memory_order_relaxed);
    if (!exit) {
      exit_->Report(wire::ExitReason::kInternalError, name + ": " + exit.error().message());
      return;
    }
    if (!Handle(*exit)) {
      return;
    }
  }
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
