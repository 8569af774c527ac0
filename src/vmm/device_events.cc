#include "vmm/device_events.h"

#include <sys/epoll.h>

#include "base/log.h"

namespace space {

Result<std::unique_ptr<DeviceEvents>> DeviceEvents::Create(EventLoop& loop) {
  SPACE_TRY(std::unique_ptr<WatchSet> watches, WatchSet::Create(), "make device events");
  return std::unique_ptr<DeviceEvents>(new DeviceEvents(loop, std::move(watches)));
}

void DeviceEvents::Hold() { loop_->Unwatch(watches_->fd()); }

Result<void> DeviceEvents::Release() { return loop_->Watch(watches_->fd(), EPOLLIN, *this, 0); }

void DeviceEvents::OnEvents(uint64_t /*token*/, uint32_t /*events*/) {
  const Result<void> served = watches_->Serve(false);
  if (!served) {
    SPACE_LOG_LIMITED(log::Level::kError, "device_events_failed",
                      {"why", served.error().message()});
  }
}

}  // namespace space
