#include "machine/relay.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/log.h"
#include "machine/tool.h"

namespace space::machine {
namespace {

constexpr size_t kMaxLine = 128;
constexpr int kLineLimitMs = 5000;
constexpr std::string_view kPortPrefix = "space.exec.";

// A port without a host at the other end is always "hung up", so poll(2) would spin. Edge-triggered
// epoll reports only changes: it is looked at once, then again when the driver says that the host
// has come.
Result<void> WaitForHost(int port) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted = {};
  wanted.events = EPOLLIN | EPOLLOUT | EPOLLET;
  if (!epoll.valid() || ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, port, &wanted) != 0) {
    return FailErrno("watch port");
  }
  while (true) {
    pollfd now = {port, POLLIN, 0};
    if (::poll(&now, 1, 0) >= 0 && (now.revents & (POLLHUP | POLLERR | POLLNVAL)) == 0) {
      return {};
    }
    epoll_event event = {};
    if (::epoll_wait(epoll.get(), &event, 1, -1) < 0 && errno != EINTR) {
      return FailErrno("wait for the host");
    }
  }
}

Result<std::string> ReadLine(int port) {
  std::string line;
  while (line.size() < kMaxLine) {
    pollfd entry = {port, POLLIN, 0};
    if (::poll(&entry, 1, kLineLimitMs) <= 0) {
      return Fail(ErrorCode::kTimeout, "host says nothing");
    }
    char byte = 0;
    const ssize_t got = ::read(port, &byte, 1);
    if (got == 0) {
      return Fail(ErrorCode::kUnavailable, "host has left");
    }
    if (got < 0 && errno != EAGAIN && errno != EINTR) {
      return FailErrno("read port");
    }
    if (got > 0 && byte == '\n') {
      return line;
    }
    if (got > 0) {
      line += byte;
    }
  }
  return Fail(ErrorCode::kInvalidArgument, "first line is too long");
}

Result<void> WriteAll(int port, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(port, text.data(), text.size());
    if (put > 0) {
      text.remove_prefix(static_cast<size_t>(put));
      continue;
    }
    pollfd entry = {port, POLLOUT, 0};
    if ((put < 0 && errno != EAGAIN && errno != EINTR) || ::poll(&entry, 1, kLineLimitMs) <= 0 ||
        (entry.revents & POLLHUP) != 0) {
      return Fail(ErrorCode::kIo, "write port");
    }
  }
  return {};
}

Result<UniqueFd> ConnectAgent(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "socket path is too long", path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FailErrno("connect to the machine's agent at", path);
  }
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) {
    return FailErrno("make the agent's socket non-blocking");
  }
  return fd;
}

// One direction: bytes read and not yet written.
struct Pipe {
  std::array<char, 65536> bytes;
  size_t begin = 0;
  size_t end = 0;
  bool is_ended = false;  // the source gives no more

  bool is_empty() const { return begin == end; }
  // False when the source failed.
  bool Fill(int from) {
    const ssize_t got = ::read(from, bytes.data(), bytes.size());
    if (got > 0) {
      begin = 0;
      end = static_cast<size_t>(got);
    } else if (got == 0) {
      is_ended = true;
    }
    return got >= 0 || errno == EAGAIN || errno == EINTR;
  }
  bool Drain(int to) {
    const ssize_t put = ::write(to, bytes.data() + begin, end - begin);
    if (put > 0) {
      begin += static_cast<size_t>(put);
    }
    return put >= 0 || errno == EAGAIN || errno == EINTR;
  }
};

short Wanted(const Pipe& reads_from_it, const Pipe& writes_to_it) {
  short events = 0;
  if (reads_from_it.is_empty() && !reads_from_it.is_ended) {
    events |= POLLIN;
  }
  if (!writes_to_it.is_empty()) {
    events |= POLLOUT;
  }
  return events;
}

// Until the host leaves. When the agent ends first, the port stays: only the host's leaving frees
// it.
void Splice(int port, UniqueFd agent) {
  auto up = std::make_unique<Pipe>();    // host to agent
  auto down = std::make_unique<Pipe>();  // agent to host
  while (true) {
    std::array<pollfd, 2> entries = {
        {{port, Wanted(*up, *down), 0}, {agent.get(), Wanted(*down, *up), 0}}};
    if (!agent.valid()) {
      entries[0].events = static_cast<short>(POLLIN | entries[0].events);
    }
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) {
      return;
    }
    if ((entries[0].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
      return;
    }
    if ((entries[0].revents & POLLIN) != 0 && (!up->Fill(port) || up->is_ended)) {
      return;
    }
    if (!down->is_empty() && !down->Drain(port)) {
      return;
    }
    if (agent.valid()) {
      const bool wrote = up->is_empty() || up->Drain(agent.get());
      const bool read = !down->is_empty() || down->Fill(agent.get());
      if (!wrote || !read || down->is_ended) {
        agent = UniqueFd();
      }
    } else {
      up->begin = up->end;  // nobody takes it any more
    }
  }
}

void Stop(const RelayOptions& options) {
  const auto ran = RunTool(options.stop_program, {}, "", std::chrono::seconds(20));
  if (!ran) {
    log::Warn("stop_program_failed", {{"error", ran.error().message()}});
  }
  // Disks are synced by the power-off itself only when asked for.
  ::sync();
  const UniqueFd trigger(::open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC));
  if (!trigger.valid() || ::write(trigger.get(), "o", 1) != 1) {
    log::Error("power_off_failed", {{"errno", errno}});
  }
}

void ServeSession(int port, const RelayOptions& options) {
  const auto line = ReadLine(port);
  if (!line) {
    return;
  }
  const auto request = ParseSessionRequest(*line);
  if (!request) {
    return;
  }
  UniqueFd agent;
  if (request->verb == "OPEN") {
    auto connected = ConnectAgent(options.agent_socket);
    if (!connected) {
      (void)WriteAll(port,
                     "SPACE1 NO " + request->nonce + " " + connected.error().message() + "\n");
      (void)ReadLine(port);  // leaves when the host does
      return;
    }
    agent = *std::move(connected);
  }
  if (!WriteAll(port, "SPACE1 OK " + request->nonce + "\n")) {
    return;
  }
  if (request->verb == "STOP") {
    Stop(options);
  }
  Splice(port, std::move(agent));
}

Result<std::vector<std::string>> FindPorts() {
  const std::string root = "/sys/class/virtio-ports";
  std::vector<std::string> devices;
  DIR* folder = ::opendir(root.c_str());
  if (folder == nullptr) {
    return FailErrno("list", root);
  }
  while (const dirent* entry = ::readdir(folder)) {  // NOLINT(concurrency-mt-unsafe): own stream
    const std::string name = entry->d_name;
    const auto text = ReadFile(root + "/" + name + "/name", 256);
    if (name.front() != '.' && text && text->rfind(kPortPrefix, 0) == 0) {
      devices.push_back("/dev/" + name);
    }
  }
  ::closedir(folder);
  if (devices.empty()) {
    return Fail(ErrorCode::kNotFound, "no port named space.exec.N in", root);
  }
  return devices;
}

}  // namespace

Result<SessionRequest> ParseSessionRequest(const std::string& line) {
  std::istringstream in(line);
  std::string magic;
  SessionRequest request;
  std::string more;
  in >> magic >> request.verb >> request.nonce;
  const bool known = request.verb == "OPEN" || request.verb == "PING" || request.verb == "STOP";
  if (magic != "SPACE1" || !known || request.nonce.empty() || in >> more) {
    return Fail(ErrorCode::kInvalidArgument, "not the first line of a session");
  }
  return request;
}

void ServePort(const std::string& device, const RelayOptions& options) {
  while (true) {
    // Opened anew for each session: closing discards what the last one left in the port's buffers.
    const UniqueFd port(::open(device.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!port.valid()) {
      log::Error("port_open_failed", {{"device", device}, {"errno", errno}});
      return;
    }
    if (const auto there = WaitForHost(port.get()); !there) {
      log::Error("port_wait_failed", {{"device", device}, {"error", there.error().message()}});
      return;
    }
    ServeSession(port.get(), options);
  }
}

Result<void> RunRelay(const RelayOptions& options) {
  SPACE_TRY(const std::vector<std::string> devices, FindPorts(), "find channels");
  std::vector<std::jthread> threads;
  threads.reserve(devices.size());
  for (const std::string& device : devices) {
    threads.emplace_back([device, options] { ServePort(device, options); });
  }
  return {};
}

}  // namespace space::machine
