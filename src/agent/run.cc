#include "agent/run.h"

#include <sys/prctl.h>

#include <csignal>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/envd.h"
#include "agent/forward.h"
#include "agent/listen.h"
#include "base/log.h"
#include "wire/ports.h"

namespace space::agent {
namespace {

// How many connections to guest ports may be open at once.
constexpr size_t kMaxForwards = 4096;

// envd and its server on one thread.
class Agent {
 public:
  Agent(asio::io_context& context, Settings settings, Guest guest)
      : context_(context),
        envd_(context_.get_executor(), std::move(settings), std::move(guest)),
        server_(context_.get_executor(),
                [this](http::Exchange& exchange) { return envd_.Serve(exchange); }) {}

  // Connections of the host, served as `peer`.
  Result<void> ServeHost(UniqueFd listener, std::string_view peer) {
    return AcceptFromHost(context_.get_executor(), std::move(listener),
                          [this, peer](http::Stream stream) {
                            server_.ServeConnection(std::move(stream), std::string(peer));
                          });
  }
  Result<void> ServeAnyone(UniqueFd listener) { return server_.Serve(std::move(listener)); }
  Result<void> ServeForwards(UniqueFd listener) {
    return AcceptFromHost(
        context_.get_executor(), std::move(listener), [this](http::Stream stream) {
          if (forwards_ >= kMaxForwards) {
            return;  // the stream closes: the host sees the end instead of an answer
          }
          ++forwards_;
          asio::co_spawn(context_, Forward(std::move(stream)),
                         [this](std::exception_ptr) { --forwards_; });
        });
  }

  // Until one of `stop_signals`.
  void Run(std::initializer_list<int> stop_signals) {
    asio::signal_set stop(context_);
    for (const int signal : stop_signals) {
      stop.add(signal);
    }
    stop.async_wait([this](const boost::system::error_code&, int) { context_.stop(); });
    envd_.processes().StartReaping();
    context_.run();
  }

  Envd& envd() { return envd_; }

 private:
  asio::io_context& context_;
  Envd envd_;
  http::Server server_;
  size_t forwards_ = 0;
};

Result<UniqueFd> Listen(const std::string& address) {
  if (address.starts_with("unix:")) {
    return http::ListenUnix(address.substr(5), 0600);
  }
  if (address.starts_with("tcp:")) {
    return http::ListenTcp(address.substr(4));
  }
  return Fail(ErrorCode::kInvalidArgument, "--listen needs unix:PATH or tcp:ADDRESS:PORT", address);
}

}  // namespace

Result<void> RunServe(ServeOptions options) {
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  asio::io_context context(1);
  SPACE_TRY(Guest guest, Guest::None(context.get_executor(), options.guest_root, options.cgroup),
            "");
  Agent agent(context, std::move(options.settings), std::move(guest));
  for (const std::string& address : options.listen) {
    SPACE_TRY(UniqueFd listener, Listen(address), "listen on " + address);
    // A unix socket of mode 0600 is the host's own; TCP may be anyone's.
    const bool is_host = address.starts_with("unix:");
    auto served = is_host ? agent.ServeHost(std::move(listener), kHostPeer)
                          : agent.ServeAnyone(std::move(listener));
    SPACE_TRY_VOID(served, "serve " + address);
  }
  agent.Run({SIGTERM, SIGINT});
  for (const auto* entry : agent.envd().processes().Running()) {
    entry->process->KillGroup(SIGKILL);
  }
  return {};
}

Result<GuestListeners> ListenInGuest() {
  GuestListeners listeners;
  SPACE_TRY(listeners.control_vsock, http::ListenVsock(wire::kControlPort), "listen for control");
  SPACE_TRY(listeners.envd_vsock, http::ListenVsock(wire::kEnvdPort), "listen for envd");
  SPACE_TRY(listeners.forward_vsock, http::ListenVsock(wire::kForwardPort), "listen for forwards");
  SPACE_TRY(listeners.envd_tcp, http::ListenTcp("0.0.0.0:49983"), "listen in the guest");
  return listeners;
}

void RunGuest(GuestListeners listeners, Settings settings, const std::function<void()>& power_off) {
  asio::io_context context(1);
  Agent agent(context, std::move(settings), Guest::OfThisMachine(context.get_executor()));
  for (auto& served : {agent.ServeHost(std::move(listeners.control_vsock), kHostPeer),
                       agent.ServeHost(std::move(listeners.envd_vsock), kClientPeer),
                       agent.ServeForwards(std::move(listeners.forward_vsock)),
                       agent.ServeAnyone(std::move(listeners.envd_tcp))}) {
    if (!served) {
      log::Error("listener_failed", {{"error", served.error().message()}});
    }
  }
  // busybox's and sysvinit's ways to ask PID 1 for a power-off, and Ctrl-Alt-Del.
  agent.Run({SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGPWR});
  power_off();
}

}  // namespace space::agent
