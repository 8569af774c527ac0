// One thread that runs one vCPU until it is stopped or the VM ends, and stands still on request.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "kvm/vcpu.h"
#include "vmm/bus.h"
#include "vmm/exit_box.h"

namespace space {

class VcpuThread {
 public:
  // Blocked in every thread of the process before this one is made (BlockSignals in service.h).
  static int KickSignal();

  enum class Start { kRunning, kParked };
  // All references outlive this.
  VcpuThread(uint32_t id, kvm::Vcpu vcpu, Bus& mmio, Bus& ports, ExitBox& exit, Start start);
  VcpuThread(const VcpuThread&) = delete;
  VcpuThread& operator=(const VcpuThread&) = delete;
  ~VcpuThread();  // Stop, then Join

  // Asks the guest's processor to stand still between two instructions; does not wait.
  void Park();
  // Until it does, or has ended.
  void WaitParked();
  void Unpark();
  // For others only between WaitParked and Unpark.
  kvm::Vcpu& vcpu() { return vcpu_; }

  // Makes the guest's processor stop at once, wherever it is; does not wait.
  void Stop();
  void Join();
  uint64_t exits() const { return exits_.load(std::memory_order_relaxed); }

 private:
  enum class Wish { kRun, kPark, kStop };

  void Run();
  // Until the wish is another; completes a half-done access first.
  void StandStill();
  // Enters the guest once and serves its exit. False: this vCPU is done.
  bool Step();
  bool Handle(const kvm::VcpuExit& exit);
  void HandlePort(const kvm::PortExit& access);
  void SetWish(Wish wish);

  const uint32_t id_;
  kvm::Vcpu vcpu_;
  Bus* mmio_;
  Bus* ports_;
  ExitBox* exit_;
  std::atomic<uint64_t> exits_ = 0;

  std::mutex mutex_;  // guards what follows; wish_ is read without it too
  std::condition_variable changed_;
  std::atomic<Wish> wish_;
  bool is_parked_ = false;
  bool has_ended_ = false;
  bool was_interrupted_ = false;  // of the vCPU's thread alone

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace space
