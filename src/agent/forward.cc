#include "agent/forward.h"

#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "agent/wake.h"

namespace space::agent {
namespace {

using Tcp = asio::ip::tcp;
using namespace asio::experimental::awaitable_operators;

constexpr std::chrono::seconds kRequestLimit{10};
constexpr std::chrono::seconds kConnectLimit{5};
constexpr size_t kMaxAddresses = 16;

// Other addresses of this machine, for servers that are bound to one of them alone.
std::vector<asio::ip::address> LocalAddresses() {
  std::vector<asio::ip::address> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) < 0) {
    return found;
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const ifaddrs* item = list; item != nullptr && found.size() < kMaxAddresses;
       item = item->ifa_next) {
    if (item->ifa_addr == nullptr) {
      continue;
    }
    asio::ip::address address;
    if (item->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(item->ifa_addr);
      address = asio::ip::address_v4(ntohl(v4->sin_addr.s_addr));
    } else if (item->ifa_addr->sa_family == AF_INET6) {
      const auto* v6 = reinterpret_cast<const sockaddr_in6*>(item->ifa_addr);
      asio::ip::address_v6::bytes_type bytes;
      std::copy_n(v6->sin6_addr.s6_addr, bytes.size(), bytes.begin());
      address = asio::ip::address_v6(bytes, v6->sin6_scope_id);
    }
    if (!address.is_unspecified() && !address.is_loopback()) {
      found.push_back(address);
    }
  }
  return found;
}

asio::awaitable<boost::system::error_code> ConnectOne(Tcp::socket& socket, Tcp::endpoint endpoint) {
  boost::system::error_code ignored;
  socket.close(ignored);
  asio::steady_timer limit(socket.get_executor(), kConnectLimit);
  const auto first =
      co_await (socket.async_connect(endpoint, kNoThrow) || limit.async_wait(kNoThrow));
  if (first.index() == 1) {
    co_return asio::error::timed_out;
  }
  co_return std::get<0>(std::get<0>(first));
}

asio::awaitable<boost::system::error_code> ConnectLocally(Tcp::socket& socket, uint16_t port) {
  auto first = co_await ConnectOne(socket, {asio::ip::address_v4::loopback(), port});
  if (!first || !co_await ConnectOne(socket, {asio::ip::address_v6::loopback(), port})) {
    co_return boost::system::error_code();
  }
  for (const asio::ip::address& address : LocalAddresses()) {
    if (!co_await ConnectOne(socket, {address, port})) {
      co_return boost::system::error_code();
    }
  }
  co_return first;
}

asio::awaitable<std::optional<uint16_t>> ReadPort(http::Stream& host) {
  std::array<unsigned char, 2> bytes{};
  asio::steady_timer limit(host.get_executor(), kRequestLimit);
  const auto first = co_await (asio::async_read(host, asio::buffer(bytes), kNoThrow) ||
                               limit.async_wait(kNoThrow));
  if (first.index() == 1 || std::get<0>(std::get<0>(first))) {
    co_return std::nullopt;
  }
  co_return static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
}

}  // namespace

boost::asio::awaitable<void> Forward(http::Stream host) {
  const auto port = co_await ReadPort(host);
  if (!port) {
    co_return;
  }
  Tcp::socket target(host.get_executor());
  const auto error = co_await ConnectLocally(target, *port);
  const int number = error.value() > 0 && error.value() < 256 ? error.value() : ECONNREFUSED;
  const std::array<char, 1> answer{error ? static_cast<char>(number) : '\0'};
  const auto [write_error, count] =
      co_await asio::async_write(host, asio::buffer(answer), kNoThrow);
  if (error || write_error) {
    co_return;
  }
  http::Stream stream(std::move(target));
  co_await http::Splice(host, stream);
}

}  // namespace space::agent
