#include "vmm/service.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include <string>

#include "kvm/system.h"
#include "vmm/control_server.h"
#include "vmm/event_loop.h"
#include "vmm/exit_box.h"
#include "vmm/vcpu_thread.h"

namespace space {
namespace {

sigset_t EndSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    ::sigaddset(&set, signal);
  }
  return set;
}

// SIGTERM and its like end the VM as a kill request does.
class SignalSink final : public EventSink {
 public:
  SignalSink(const UniqueFd& signals, ExitBox& exit) : signals_(&signals), exit_(&exit) {}
  void OnEvents(uint64_t /*token*/, uint32_t /*events*/) override {
    signalfd_siginfo info = {};
    if (::read(signals_->get(), &info, sizeof(info)) == sizeof(info)) {
      exit_->Report(wire::ExitReason::kKilled, "by signal " + std::to_string(info.ssi_signo));
    }
  }

 private:
  const UniqueFd* signals_;
  ExitBox* exit_;
};

}  // namespace

void BlockSignals() {
  sigset_t set = EndSignals();
  ::sigaddset(&set, SIGPIPE);
  ::sigaddset(&set, VcpuThread::KickSignal());
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Result<void> RunService(UniqueFd listener, UniqueFd kvm, std::optional<PageScan> scan) {
  SPACE_TRY(const kvm::System system, kvm::System::Create(std::move(kvm)), "use /dev/kvm");
  SPACE_TRY(const std::unique_ptr<EventLoop> loop, EventLoop::Create(), "make event loop");
  ExitBox exit([&loop] { loop->Stop(); });
  const sigset_t end_signals = EndSignals();
  const UniqueFd signals(::signalfd(-1, &end_signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) {
    return FailErrno("create signalfd");
  }
  SignalSink signal_sink(signals, exit);
  SPACE_TRY_VOID(loop->Watch(signals.get(), EPOLLIN, signal_sink, 0), "watch signals");
  SPACE_TRY(const std::unique_ptr<ControlServer> server,
            ControlServer::Create(std::move(listener), system, std::move(scan), *loop, exit),
            "serve control socket");
  const Result<void> ran = loop->Run();
  if (!ran) {
    exit.Report(wire::ExitReason::kInternalError, ran.error().message());
  }
  server->Finish(exit.Get().value_or(wire::Exit{wire::ExitReason::kInternalError, "no reason"}));
  return {};
}

}  // namespace space
