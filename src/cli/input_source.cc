#include "cli/input_source.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace space::cli {

InputSource::InputSource(int fd) : fd_(fd), stop_(::eventfd(0, EFD_CLOEXEC)) {}

InputSource::~InputSource() { Stop(); }

void InputSource::Stop() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof(one));
  pool_.join();
}

boost::asio::awaitable<std::string> InputSource::Next() {
  co_return co_await boost::asio::co_spawn(pool_, ReadOnPool(), boost::asio::use_awaitable);
}

boost::asio::awaitable<std::string> InputSource::ReadOnPool() { co_return ReadBlocking(); }

std::string InputSource::ReadBlocking() const {
  std::string chunk(kChunkBytes, '\0');
  while (true) {
    std::array<pollfd, 2> entries = {{{fd_, POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    const int ready = ::poll(entries.data(), entries.size(), -1);
    if (ready < 0 && errno == EINTR) {
      continue;
    }
    if (ready < 0 || entries[1].revents != 0) {
      return "";
    }
    const ssize_t got = ::read(fd_, chunk.data(), chunk.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) {
      continue;
    }
    chunk.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return chunk;
  }
}

bool HasPipedInput(int fd) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return false;
  }
  if (S_ISCHR(info.st_mode)) {
    const dev_t null_device = makedev(1, 3);
    return ::isatty(fd) == 0 && info.st_rdev != null_device;
  }
  return S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode) || S_ISSOCK(info.st_mode);
}

}  // namespace space::cli
