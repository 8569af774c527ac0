#include "api/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "api/api.h"
#include "base/log.h"
#include "http/spawn.h"
#include "node/local_launcher.h"

namespace space {
namespace {

// The answer to a shutdown call is read by its client before connections are cut.
constexpr std::chrono::milliseconds kLastWords{300};

Result<void> MakeFolder(const std::string& path, unsigned mode) {
  SPACE_TRY_VOID(MakeDirectories(path, mode), "make folder");
  if (::chmod(path.c_str(), mode) != 0) {
    return FailErrno("set mode of", path);
  }
  return {};
}

// Held as long as the descriptor is open; the kernel lets go when the process dies.
Result<UniqueFd> Lock(const std::string& folder) {
  const std::string path = folder + "/spaced.lock";
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return FailErrno("open", path);
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) {
    return fd;
  }
  if (errno != EWOULDBLOCK) {
    return FailErrno("lock", path);
  }
  return Fail(ErrorCode::kConflict, "another spaced is running with this folder", folder);
}

std::string VmmProgram(const Config& config) {
  if (!config.vmm_path.empty()) {
    return config.vmm_path;
  }
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / "space-vmm").string();
}

// On the first start: a team, and an admin key in a file that only the owner of data_dir can read.
Result<void> EnsureFirstKey(Catalog& catalog, const std::string& data_dir) {
  SPACE_TRY(std::optional<Team> team, catalog.keys().FindTeam("default"), "first key");
  if (!team) {
    SPACE_TRY(team, catalog.keys().CreateTeam("default", Node::Now()), "first key");
  }
  SPACE_TRY(const std::vector<ApiKey> keys, catalog.keys().List(team->id), "first key");
  if (!keys.empty()) {
    return {};
  }
  SPACE_TRY(const NewKey made,
            catalog.keys().Create(team->id, "first admin key", Scope::kAdmin, Node::Now()),
            "first key");
  SPACE_TRY_VOID(WriteFileAtomically(data_dir + "/admin.key", made.secret + "\n"), "first key");
  log::Info("admin_key_written", {{"file", data_dir + "/admin.key"}});
  return {};
}

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

struct Daemon {
  Daemon(const Config& config, Catalog& catalog, Launcher& launcher)
      : node(io.get_executor(), config, catalog, launcher),
        api(node, [this] { StopSoon(); }),
        server(io.get_executor(), [this](http::Exchange& e) { return api.Handle(e); }),
        signals(io, SIGTERM, SIGINT),
        last_words(io) {}

  void StopSoon() {
    last_words.expires_after(kLastWords);
    last_words.async_wait([this](const boost::system::error_code&) { io.stop(); });
  }

  static boost::asio::awaitable<void> Start(Daemon& daemon, UniqueFd listener,
                                            Result<void>& outcome);

  boost::asio::io_context io;
  Node node;
  Api api;
  http::Server server;
  boost::asio::signal_set signals;
  boost::asio::steady_timer last_words;
};

boost::asio::awaitable<void> Daemon::Start(Daemon& daemon, UniqueFd listener,
                                           Result<void>& outcome) {
  outcome = co_await daemon.node.Start();
  if (outcome) {
    outcome = daemon.server.Serve(std::move(listener));
  }
  if (!outcome) {
    daemon.io.stop();
    co_return;
  }
  log::Info("ready", {{"listen", daemon.node.config().listen},
                      {"version", kSpaceVersion},
                      {"sandboxes", daemon.node.live_count()}});
}

}  // namespace

Result<void> RunDaemon(const Config& config) {
  ::signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  SPACE_TRY_VOID(MakeFolder(config.data_dir, 0700), "data_dir");
  SPACE_TRY_VOID(MakeFolder(config.run_dir, 0711), "run_dir");
  SPACE_TRY_VOID(MakeFolder(config.run_dir + "/vm", 0700), "run_dir");
  SPACE_TRY(const UniqueFd run_lock, Lock(config.run_dir), "start");
  SPACE_TRY(const UniqueFd data_lock, Lock(config.data_dir), "start");
  SPACE_TRY(UniqueFd listener, http::ListenTcp(config.listen), "listen");
  const std::string pid_file = config.run_dir + "/spaced.pid";
  SPACE_TRY_VOID(WriteFileAtomically(pid_file, std::to_string(::getpid()) + "\n", 0644), "start");

  SPACE_TRY(const std::unique_ptr<Catalog> catalog, Catalog::Open(config.data_dir + "/catalog.db"),
            "start");
  SPACE_TRY_VOID(EnsureFirstKey(*catalog, config.data_dir), "start");
  LocalLauncher launcher(config.run_dir + "/vm", VmmProgram(config));
  Result<void> outcome;
  {
    Daemon daemon(config, *catalog, launcher);
    daemon.signals.async_wait([&](const boost::system::error_code& error, int number) {
      if (!error) {
        log::Info("stopping", {{"signal", number}, {"sandboxes", daemon.node.live_count()}});
        daemon.io.stop();
      }
    });
    http::Spawn(daemon.io.get_executor(), Daemon::Start(daemon, std::move(listener), outcome),
                "start");
    daemon.io.run();
    daemon.server.Stop();
  }
  ::unlink(pid_file.c_str());
  return outcome;
}

}  // namespace space
