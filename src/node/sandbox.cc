#include "node/sandbox.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "base/log.h"

namespace space {

Sandbox::Sandbox(const asio::any_io_executor& executor, const std::string& data_dir,
                 SandboxRecord start)
    : record(std::move(start)),
      asked_at(record.created_at),
      files(data_dir, record.id),
      changed(executor),
      process_(executor) {}

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

void Sandbox::Tell(log::Level level, std::string_view event, log::Fields fields) const {
  log::Write(level, event, fields);
  if (const auto file = OpenAppend(files.vmm_log())) {  // gone with its folder
    [[maybe_unused]] const auto written = WriteFull(file->get(), log::Line(level, event, fields));
  }
}

void Sandbox::TakeProcess(UniqueFd pidfd) {
  boost::system::error_code error;
  process_.assign(pidfd.Release(), error);
  if (error) {
    log::Error("process_not_watched", {{"sandbox_id", record.id}, {"error", error.message()}});
  }
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
