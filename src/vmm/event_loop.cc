#include "vmm/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

namespace space {
namespace {

// Key of the wake descriptor: generation 0 is used by no entry.
constexpr uint64_t kWakeKey = 0;

uint64_t KeyOf(int fd, uint32_t generation) {
  return uint64_t{generation} << 32 | static_cast<uint32_t>(fd);
}

void SignalEvent(const UniqueFd& event) {
  constexpr uint64_t kOne = 1;
  // Fails only when the counter is full, and then the reader is awake already.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &kOne, sizeof(kOne));
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) {
    return FailErrno("create epoll");
  }
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return FailErrno("create eventfd");
  }
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = kWakeKey}};
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) {
    return FailErrno("watch eventfd");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll), std::move(wake)));
}

Result<void> EventLoop::Watch(int fd, uint32_t events, EventSink& sink, uint64_t token) {
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

void EventLoop::Unwatch(int fd) {
  const std::lock_guard lock(mutex_);
  if (entries_.erase(fd) != 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

void EventLoop::Post(std::function<void()> call) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(call));
  }
  SignalEvent(wake_);
}

void EventLoop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  SignalEvent(wake_);
}

Result<void> EventLoop::Run() {
  std::array<epoll_event, 32> events{};
  for (;;) {
    RunPosted();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopped_) {
        return {};
      }
    }
    const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    if (count < 0 && errno != EINTR) {
      return FailErrno("wait for events");
    }
    for (int at = 0; at < count; ++at) {
      Dispatch(events[static_cast<size_t>(at)].data.u64, events[static_cast<size_t>(at)].events);
    }
  }
}

void EventLoop::RunPosted() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(posted_);
  }
  for (const std::function<void()>& call : calls) {
    call();
  }
}

void EventLoop::Dispatch(uint64_t key, uint32_t events) {
  if (key == kWakeKey) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
    return;
  }
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
