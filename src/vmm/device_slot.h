// One virtio device in the machine: its place on the MMIO bus, its interrupt, its doorbells, and
// its own view of the device events.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "kvm/vm.h"
#include "virtio/mmio_transport.h"
#include "vmm/bus.h"
#include "vmm/watch_set.h"

namespace space {

class DeviceSlot final : public HostPoller, private BusDevice, private EventSink {
 public:
  // Windows of all devices lie one behind the other from here; interrupts count up from kFirstGsi
  // to the last pin of the I/O APIC.
  static constexpr uint64_t kFirstWindow = 0xd0000000;
  static constexpr uint32_t kFirstGsi = 5;
  static constexpr uint32_t kMaxSlots = 24 - kFirstGsi;

  // `watches` outlives this.
  static Result<std::unique_ptr<DeviceSlot>> Create(uint32_t index, WatchSet& watches);
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;
  ~DeviceSlot() override;

  // Puts the device in: once, before the vCPUs run. `memory`, `vm` and `bus` outlive this.
  Result<void> Attach(std::unique_ptr<VirtioDevice> device, const GuestMemory& memory,
                      const kvm::Vm& vm, Bus& bus);
  MmioTransport& transport() { return *transport_; }

  uint32_t window() const;
  uint32_t gsi() const { return kFirstGsi + index_; }

  // For the device.
  Result<void> Watch(int fd, uint32_t events, uint64_t token) override;
  void Unwatch(int fd) override;

 private:
  // Events of this slot's doorbells.
  class Doorbells final : public EventSink {
   public:
    explicit Doorbells(DeviceSlot& slot) : slot_(&slot) {}
    void OnEvents(uint64_t token, uint32_t events) override;

   private:
    DeviceSlot* slot_;
  };

  DeviceSlot(uint32_t index, WatchSet& watches, UniqueFd interrupt);
  void Read(uint64_t offset, std::span<std::byte> into) override;
  void Write(uint64_t offset, std::span<const std::byte> from) override;
  void OnEvents(uint64_t token, uint32_t events) override;

  const uint32_t index_;
  WatchSet* watches_;
  UniqueFd interrupt_;  // irqfd
  std::vector<UniqueFd> doorbell_events_;
  Doorbells doorbells_;
  std::unique_ptr<MmioTransport> transport_;
};

}  // namespace space
