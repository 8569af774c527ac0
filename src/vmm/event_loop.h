// The device thread's loop: epoll over descriptors, and calls posted from other threads. One per
// process; devices, control socket and signals all live on it, so none of them needs a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace space {

// Told about a watched descriptor, on the loop's thread. May come late by one event when another
// thread stopped watching meanwhile.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvents(uint64_t token, uint32_t events) = 0;
};

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> Create();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop() = default;

  // Level triggered; `sink` outlives the watch. Watching again changes all three. Any thread.
  Result<void> Watch(int fd, uint32_t events, EventSink& sink, uint64_t token);
  // Before the descriptor is closed. Nothing happens when it is not watched. Any thread.
  void Unwatch(int fd);
  // Runs `call` on the loop's thread, in the order posted. Any thread.
  void Post(std::function<void()> call);

  // Until Stop. Errors are epoll's own.
  Result<void> Run();
  void Stop();  // any thread

 private:
  struct Entry {
    uint32_t
        generation;  // tells an event of this watch from one of an earlier watch on the same fd
    EventSink* sink;
    uint64_t token;
  };

  EventLoop(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void RunPosted();
  void Dispatch(uint64_t key, uint32_t events);

  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd
  std::mutex mutex_;
  std::unordered_map<int, Entry> entries_;
  std::vector<std::function<void()>> posted_;
  uint32_t next_generation_ = 1;
  bool is_stopped_ = false;
};

}  // namespace space
