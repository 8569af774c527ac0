#include "machine/channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/random.h"

namespace space::machine {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A busy emulated host may take this long to notice a new session.
constexpr milliseconds kAnswerLimit{4000};
// Bytes of an older session that may come before the answer.
constexpr size_t kMaxStaleBytes = 4 << 20;

// Invalid when somebody else holds it.
Result<UniqueFd> TryLock(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    return FailErrno("open lock", path);
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return UniqueFd();
    }
    return FailErrno("lock", path);
  }
  return fd;
}

Result<UniqueFd> ConnectSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kInvalidArgument, "socket path is too long", path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return FailErrno("make socket");
  }
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return FailErrno("connect to the machine at", path);
  }
  return fd;
}

Result<void> WaitReadable(int socket, Clock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd entry = {socket, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&entry, 1, static_cast<int>(left.count()));
    if (ready > 0) {
      return {};
    }
    if (ready == 0) {
      return Fail(ErrorCode::kTimeout, "the machine does not answer on this channel");
    }
    if (errno != EINTR) {
      return FailErrno("wait for the machine");
    }
  }
}

// Byte by byte: what follows the line belongs to the session.
Result<char> ReadByte(int socket, Clock::time_point deadline) {
  SPACE_TRY_VOID(WaitReadable(socket, deadline), "read answer");
  char byte = 0;
  const ssize_t got = ::recv(socket, &byte, 1, 0);
  if (got < 0) {
    return FailErrno("read answer");
  }
  if (got == 0) {
    return Fail(ErrorCode::kUnavailable, "the machine closed the channel");
  }
  return byte;
}

Result<Channel> TryChannel(const Layout& layout, size_t index, Verb verb, milliseconds limit) {
  Channel channel;
  SPACE_TRY(channel.lock, TryLock(layout.channel_lock(index)), "take channel");
  if (!channel.lock.valid()) {
    return Fail(ErrorCode::kExhausted, "all channels to the machine are busy");
  }
  SPACE_TRY(channel.socket, ConnectSocket(layout.channel_socket(index)), "take channel");
  SPACE_TRY_VOID(Handshake(channel.socket.get(), verb, limit), "open channel");
  return channel;
}

}  // namespace

std::string_view VerbName(Verb verb) {
  switch (verb) {
    case Verb::kOpen:
      return "OPEN";
    case Verb::kPing:
      return "PING";
    case Verb::kStop:
      return "STOP";
  }
  return "";
}

Result<void> Handshake(int socket, Verb verb, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  const std::string nonce = RandomHex(8);
  const std::string hello = "SPACE1 " + std::string(VerbName(verb)) + " " + nonce + "\n";
  if (::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(hello.size())) {
    return FailErrno("write to the machine");
  }
  const std::string yes = "SPACE1 OK " + nonce;
  const std::string no = "SPACE1 NO " + nonce + " ";
  std::string line;
  for (size_t count = 0; count < kMaxStaleBytes; ++count) {
    SPACE_TRY(const char byte, ReadByte(socket, deadline), "handshake");
    if (byte != '\n') {
      line += byte;
      continue;
    }
    // Stale bytes may end in the middle of a line, so look at the end only.
    if (line.ends_with(yes)) {
      return {};
    }
    if (const size_t at = line.find(no); at != std::string::npos) {
      return Fail(ErrorCode::kUnavailable, line.substr(at + no.size()));
    }
    line.clear();
  }
  return Fail(ErrorCode::kUnavailable, "the channel carries bytes of another session");
}

Result<Channel> OpenChannel(const Layout& layout, Verb verb, milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  // Starting anywhere keeps a session off the port that another has just left.
  size_t index = static_cast<size_t>(std::hash<std::string>{}(RandomHex(4))) % kChannels;
  while (true) {
    Error last(ErrorCode::kExhausted, "all channels to the machine are busy");
    for (size_t tried = 0; tried < kChannels; ++tried) {
      index = (index + 1) % kChannels;
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) {
        break;
      }
      auto channel = TryChannel(layout, index, verb, std::min(left, kAnswerLimit));
      if (channel) {
        return channel;
      }
      const ErrorCode code = channel.error().code();
      if (code == ErrorCode::kExhausted) {
        continue;
      }
      if (code == ErrorCode::kNotFound || channel.error().system_errno() == ECONNREFUSED) {
        return Fail(ErrorCode::kNotFound, "the emulated host does not run; space machine start");
      }
      last = std::move(channel).error();
    }
    if (Clock::now() + milliseconds(50) >= deadline) {
      return Fail(std::move(last));
    }
    std::this_thread::sleep_for(milliseconds(50));
  }
}

}  // namespace space::machine
