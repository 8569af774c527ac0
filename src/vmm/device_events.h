// All descriptors that devices wait for, held back as one while the machine is paused: what is
// signalled stays so (doorbells, timers, bytes in sockets) and is served after the release. Nobody
// touches guest memory meanwhile. Device thread; Watch and Unwatch also vCPU threads.
#pragma once

#include <memory>

#include "vmm/event_loop.h"
#include "vmm/watch_set.h"

namespace space {

class DeviceEvents final : private EventSink {
 public:
  // Held at first. `loop` outlives this.
  static Result<std::unique_ptr<DeviceEvents>> Create(EventLoop& loop);
  DeviceEvents(const DeviceEvents&) = delete;
  DeviceEvents& operator=(const DeviceEvents&) = delete;
  ~DeviceEvents() override { Hold(); }

  WatchSet& watches() { return *watches_; }
  void Hold();
  Result<void> Release();

 private:
  DeviceEvents(EventLoop& loop, std::unique_ptr<WatchSet> watches)
      : loop_(&loop), watches_(std::move(watches)) {}
  void OnEvents(uint64_t token, uint32_t events) override;

  EventLoop* loop_;
  std::unique_ptr<WatchSet> watches_;
};

}  // namespace space
