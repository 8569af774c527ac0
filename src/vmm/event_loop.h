// The device thread's loop: descriptors, and calls posted from other threads. One per process;
// devices, control socket and signals all live on it, so none of them needs a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "vmm/watch_set.h"

namespace space {

class EventLoop final : private EventSink {
 public:
  static Result<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop() override = default;

  // As WatchSet's. Any thread.
  Result<void> Watch(int fd, uint32_t events, EventSink& sink, uint64_t token) {
    return watches_->Watch(fd, events, sink, token);
  }
  void Unwatch(int fd) { watches_->Unwatch(fd); }
  // Runs `call` on the loop's thread, in the order posted. Any thread.
  void Post(std::function<void()> call);

  // Until Stop. Errors are epoll's own.
  Result<void> Run();
  void Stop();  // any thread

 private:
  EventLoop(std::unique_ptr<WatchSet> watches, UniqueFd wake)
      : watches_(std::move(watches)), wake_(std::move(wake)) {}
  void OnEvents(uint64_t token, uint32_t events) override;  // of wake_
  void RunPosted();

  std::unique_ptr<WatchSet> watches_;
  UniqueFd wake_;  // eventfd
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool is_stopped_ = false;
};

}  // namespace space
