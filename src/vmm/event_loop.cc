#include "vmm/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace space {
namespace {

void SignalEvent(const UniqueFd& event) {
  constexpr uint64_t kOne = 1;
  // Fails only when the counter is full, and then the reader is awake already.
  [[maybe_unused]] const ssize_t written = ::write(event.get(), &kOne, sizeof(kOne));
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::Create() {
  SPACE_TRY(std::unique_ptr<WatchSet> watches, WatchSet::Create(), "make event loop");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    return FailErrno("create eventfd");
  }
  auto loop = std::unique_ptr<EventLoop>(new EventLoop(std::move(watches), std::move(wake)));
  SPACE_TRY_VOID(loop->Watch(loop->wake_.get(), EPOLLIN, *loop, 0), "watch eventfd");
  return loop;
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
  for (;;) {
    RunPosted();
    {
      const std::lock_guard lock(mutex_);
      if (is_stopped_) {
        return {};
      }
    }
    SPACE_TRY_VOID(watches_->Serve(true), "run event loop");
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

void EventLoop::OnEvents(uint64_t /*token*/, uint32_t /*events*/) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
}

}  // namespace space
