// Standard input as an awaitable. Files cannot be polled and a terminal must keep its blocking mode
// for the shell that we return to, so a thread of its own reads, only when asked.
#pragma once

#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>

#include "base/fd.h"

namespace space::cli {

class InputSource {
 public:
  static constexpr size_t kChunkBytes = 64 * 1024;

  explicit InputSource(int fd);
  ~InputSource();  // stops
  InputSource(const InputSource&) = delete;
  InputSource& operator=(const InputSource&) = delete;
  InputSource(InputSource&&) = delete;
  InputSource& operator=(InputSource&&) = delete;

  // Ends a pending Next and all later ones; waits for the thread, which takes no time.
  void Stop();
  // "" at the end. One call at a time.
  boost::asio::awaitable<std::string> Next();

 private:
  std::string ReadBlocking() const;
  boost::asio::awaitable<std::string> ReadOnPool();
  int fd_;
  UniqueFd stop_;  // eventfd
  boost::asio::thread_pool pool_{1};
};

// Whether standard input has something for the command without being asked for: a pipe, a file or a
// socket. Neither a terminal, nor /dev/null, nor a closed descriptor.
bool HasPipedInput(int fd);

}  // namespace space::cli
