#include "node/sandbox.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace space {

Sandbox::Sandbox(const asio::any_io_executor& executor, const std::string& data_dir,
                 SandboxRecord start)
    : record(std::move(start)), files(data_dir, record.id), changed(executor), process_(executor) {}

Sandbox::CutGuard::CutGuard(std::shared_ptr<Sandbox> sandbox, std::function<void()> cut)
    : sandbox_(std::move(sandbox)) {
  place_ = sandbox_->cuts_.insert(sandbox_->cuts_.end(), std::move(cut));
}

Sandbox::CutGuard::~CutGuard() { sandbox_->cuts_.erase(place_); }

void Sandbox::CutStreams() {
  // A cut may end its coroutine only later, so the list does not change under this loop.
  for (const std::function<void()>& cut : cuts_) {
    cut();
  }
}

void Sandbox::TakeProcess(UniqueFd pidfd) {
  boost::system::error_code ignored;
  process_.assign(pidfd.Release(), ignored);
}

void Sandbox::Signal(int number) {
  if (process_.is_open()) {
    ::syscall(SYS_pidfd_send_signal, process_.native_handle(), number, nullptr, 0);
  }
}

void Sandbox::DropProcess() {
  boost::system::error_code ignored;
  process_.close(ignored);
}

}  // namespace space
