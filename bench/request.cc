// bench-request HOST PORT METHOD PATH [HEADER...]: one request to the daemon over a connection of
// its own, the body from standard input. Prints the status, the microseconds from connect() to the
// last byte of the answer, and the answer's body. For benches whose times are those of an
// interpreter otherwise.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/fd.h"

namespace space {
namespace {

constexpr std::string_view kLength = "\r\nContent-Length: ";

Result<UniqueFd> Connect(const char* host, const char* port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  if (::inet_pton(AF_INET, host, &address.sin_addr) != 1) {
    return Fail(ErrorCode::kInvalidArgument, "HOST is not an IPv4 address", host);
  }
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!fd.valid() || ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
      ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return FailErrno("connect");
  }
  return fd;
}

// Head and body; the daemon gives answers of the API a length.
Result<std::string> ReadAnswer(int fd) {
  std::string text;
  size_t wanted = std::string::npos;
  while (text.size() < wanted) {
    char chunk[65536];
    const ssize_t got = ::read(fd, chunk, sizeof(chunk));
    if (got <= 0) {
      return Fail(ErrorCode::kIo, "the daemon closed the connection");
    }
    text.append(chunk, static_cast<size_t>(got));
    const size_t end = text.find("\r\n\r\n");
    const size_t at = text.find(kLength);
    if (end != std::string::npos) {
      size_t length = 0;
      if (at < end) {
        const char* digits = text.data() + at + kLength.size();
        std::from_chars(digits, text.data() + end, length);
      }
      wanted = end + 4 + length;
    }
  }
  return text;
}

Result<void> Run(int argc, char** argv) {
  if (argc < 5) {
    return Fail(ErrorCode::kInvalidArgument,
                "usage: bench-request HOST PORT METHOD PATH [HEADER...]");
  }
  std::string body;
  char chunk[4096];
  for (ssize_t got = 0; (got = ::read(STDIN_FILENO, chunk, sizeof(chunk))) > 0;) {
    body.append(chunk, static_cast<size_t>(got));
  }
  std::string request = std::string(argv[3]) + " " + argv[4] + " HTTP/1.1\r\nHost: " + argv[1] +
                        ":" + argv[2] + std::string(kLength) + std::to_string(body.size());
  for (int at = 5; at < argc; ++at) {
    request += std::string("\r\n") + argv[at];
  }
  request += "\r\n\r\n" + body;
  const auto begun = std::chrono::steady_clock::now();
  SPACE_TRY(const UniqueFd fd, Connect(argv[1], argv[2]), "");
  SPACE_TRY_VOID(WriteFull(fd.get(), request), "send");
  SPACE_TRY(const std::string answer, ReadAnswer(fd.get()), "receive");
  const auto took = std::chrono::steady_clock::now() - begun;
  std::printf(
      "%s %lld\n%s", answer.substr(9, 3).c_str(),
      static_cast<long long>(std::chrono::duration_cast<std::chrono::microseconds>(took).count()),
      answer.substr(answer.find("\r\n\r\n") + 4).c_str());
  return {};
}

}  // namespace
}  // namespace space

int main(int argc, char** argv) {
  const auto ran = space::Run(argc, argv);
  if (!ran) {
    std::fprintf(stderr, "bench-request: %s\n", ran.error().message().c_str());
  }
  return ran ? 0 : 1;
}
