// One thread that runs one vCPU until it is stopped or the VM ends.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "kvm/vcpu.h"
#include "vmm/bus.h"
#include "vmm/exit_box.h"

namespace space {

class VcpuThread {
 public:
  // Blocked in every thread of the process before this one is made (BlockSignals in service.h).
  static int KickSignal();

  // Starts running at once. All references outlive this.
  VcpuThread(uint32_t id, kvm::Vcpu vcpu, Bus& mmio, Bus& ports, ExitBox& exit);
  VcpuThread(const VcpuThread&) = delete;
  VcpuThread& operator=(const VcpuThread&) = delete;
  ~VcpuThread();  // Stop, then Join

  // Makes the guest's processor stop at once, wherever it is; does not wait.
  void Stop();
  void Join();
  uint64_t exits() const { return exits_.load(std::memory_order_relaxed); }

 private:
  void Run();
  // False: this vCPU is done.
  bool Handle(const kvm::VcpuExit& exit);
  void HandlePort(const kvm::PortExit& access);

  const uint32_t id_;
  kvm::Vcpu vcpu_;
  Bus* mmio_;
  Bus* ports_;
  ExitBox* exit_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<uint64_t> exits_ = 0;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace space
