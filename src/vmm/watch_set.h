// Watched descriptors behind one epoll descriptor, which may itself be watched: a set of its own
// can be held back as a whole (device_events.h).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

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

class WatchSet {
 public:
  static Result<std::unique_ptr<WatchSet>> Create();
  WatchSet(const WatchSet&) = delete;
  WatchSet& operator=(const WatchSet&) = delete;
  ~WatchSet() = default;

  // Level triggered; `sink` outlives the watch. Watching again changes all three. Any thread.
  Result<void> Watch(int fd, uint32_t events, EventSink& sink, uint64_t token);
  // Before the descriptor is closed. Nothing happens when it is not watched. Any thread.
  void Unwatch(int fd);

  // Readable while something is ready.
  int fd() const { return epoll_.get(); }
  // Tells the sinks what is ready, one batch; waits for it when `may_wait`. Errors are epoll's own.
  Result<void> Serve(bool may_wait);

 private:
  struct Entry {
    uint32_t
        generation;  // tells an event of this watch from one of an earlier watch on the same fd
    EventSink* sink;
    uint64_t token;
  };

  explicit WatchSet(UniqueFd epoll) : epoll_(std::move(epoll)) {}
  void Dispatch(uint64_t key, uint32_t events);

  UniqueFd epoll_;
  std::mutex mutex_;
  std::unordered_map<int, Entry> entries_;
  uint32_t next_generation_ = 1;
};

}  // namespace space
