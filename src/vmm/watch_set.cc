#include "vmm/watch_set.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>
#include <optional>

namespace space {
namespace {

uint64_t KeyOf(int fd, uint32_t generation) {
  return uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
}

}  // namespace

Result<std::unique_ptr<WatchSet>> WatchSet::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return FailErrno("create epoll");
  }
  return std::unique_ptr<WatchSet>(new WatchSet(std::move(epoll)));
}

Result<void> WatchSet::Watch(int fd, uint32_t events, EventSink& sink, uint64_t token) {
  const std::lock_guard lock(mutex_);
  const bool is_known = entries_.contains(fd);
  const uint32_t generation = next_generation_++;
  if (next_generation_ == 0) {
    next_generation_ = 1;
  }
  epoll_event event = {.events = events, .data = {.u64 = KeyOf(fd, generation)}};
  if (::epoll_ctl(epoll_.get(), is_known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0) {
    return FailErrno("watch descriptor");
  }
  entries_.insert_or_assign(fd, Entry{generation, &sink, token});
  return {};
}

void WatchSet::Unwatch(int fd) {
  const std::lock_guard lock(mutex_);
  if (entries_.erase(fd) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

Result<void> WatchSet::Serve(bool may_wait) {
  std::array<epoll_event, 32> events{};
  const int count =
      ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), may_wait ? -1 : 0);
  if (count < 0 && errno != EINTR) {
    return FailErrno("wait for events");
  }
  for (int at = 0; at < count; ++at) {
    Dispatch(events[static_cast<size_t>(at)].data.u64, events[static_cast<size_t>(at)].events);
  }
  return {};
}

void WatchSet::Dispatch(uint64_t key, uint32_t events) {
  std::optional<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(static_cast<int>(static_cast<uint32_t>(key)));
    if (found != entries_.end() && found->second.generation == key >> 32) {
      entry = found->second;
    }
  }
  if (entry) {
    entry->sink->OnEvents(entry->token, events);
  }
}

}  // namespace space
