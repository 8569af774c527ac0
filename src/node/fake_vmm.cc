// A space-vmm without a VM: speaks wire/vmm_control.h on descriptor 3 and plays agent and guest on
// the socket pairs that it is given. Words on the kernel command line make it misbehave:
//   fake=refuse      StartRequest fails        fake=silent    no hello
//   fake=panic       ends before the hello     fake=deaf      ignores KillRequest
//   fake=badinit     the agent refuses /init
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "base/fd.h"
#include "base/seqpacket.h"
#include "http/event.h"
#include "http/server.h"
#include "http/spawn.h"
#include "wire/hello.h"
#include "wire/ports.h"
#include "wire/vmm_control.h"

namespace space {
namespace {

namespace asio = boost::asio;

struct Fake {
  explicit Fake(asio::io_context& io)
      : executor(io.get_executor()),
        listener(io, 3),
        agent(io.get_executor(), [this](http::Exchange& e) { return Agent(*this, e); }),
        web(io.get_executor(), [](http::Exchange& e) { return Web(e); }) {}

  static asio::awaitable<void> Agent(Fake& fake, http::Exchange& exchange);
  static asio::awaitable<void> Web(http::Exchange& exchange);
  [[noreturn]] void Exit(wire::ExitReason reason, std::string detail);
  void Send(uint32_t id, wire::VmmMessage message) {
    if (client != nullptr) {
      [[maybe_unused]] const auto sent =
          SendPacket(client->native_handle(), wire::Encode({id, std::move(message)}));
    }
  }
  bool Is(const std::string& word) const {
    return start.command_line.find("fake=" + word) != std::string::npos;
  }

  asio::any_io_executor executor;
  asio::posix::stream_descriptor listener;
  std::shared_ptr<asio::posix::stream_descriptor> client;
  http::Server agent;
  http::Server web;
  wire::StartRequest start;
  std::vector<UniqueFd> fds;
  std::string hello;
  std::string init_body;
};

void Fake::Exit(wire::ExitReason reason, std::string detail) {
  const wire::Exit exit{reason, std::move(detail)};
  if (!fds.empty()) {
    [[maybe_unused]] const auto written = WriteFull(fds.back().get(), wire::EncodeExitRecord(exit));
  }
  Send(0, wire::ExitEvent{exit});
  ::_exit(0);
}

asio::awaitable<void> Reply(http::Exchange& exchange, int status, std::string body) {
  http::ResponseHead head{status, {{"Content-Type", "text/plain"}}};
  [[maybe_unused]] const auto sent = co_await exchange.Respond(std::move(head), std::move(body));
}

// A first chunk, then silence: what a long command looks like.
asio::awaitable<void> StreamForEver(http::Exchange& exchange) {
  const auto started = co_await exchange.Start({200, {}}, std::nullopt);
  const auto written = co_await exchange.Write("first\n");
  if (started && written) {
    co_await exchange.WaitForPeerClose();
  }
}

asio::awaitable<void> Echo(http::Exchange& exchange) {
  std::string chunk(4096, '\0');
  if (!co_await exchange.Start({200, {}}, std::nullopt)) {
    co_return;
  }
  for (;;) {
    const auto got = co_await exchange.Read(chunk);
    if (!got || *got == 0 || !co_await exchange.Write(std::string_view(chunk).substr(0, *got))) {
      break;
    }
  }
  [[maybe_unused]] const auto done = co_await exchange.Finish();
}

asio::awaitable<void> EchoUpgraded(http::Exchange& exchange) {
  http::ResponseHead head;
  head.status = 101;
  head.headers.Set("Connection", "Upgrade");
  head.headers.Set("Upgrade", "echo");
  auto raw = co_await exchange.Upgrade(std::move(head));
  std::array<char, 256> bytes;
  while (raw) {
    const auto [error, got] =
        co_await raw->stream.async_read_some(asio::buffer(bytes), http::kNoThrow);
    if (error) {
      break;
    }
    co_await asio::async_write(raw->stream, asio::buffer(bytes.data(), got), http::kNoThrow);
  }
}

asio::awaitable<void> Fake::Agent(Fake& fake, http::Exchange& exchange) {
  const std::string& target = exchange.request().target;
  if (target == "/health") {
    co_await Reply(exchange, 204, "");
  } else if (target == "/init") {
    auto body = co_await exchange.ReadAll(1 << 20);
    fake.init_body = body ? *body : "";
    co_await Reply(exchange, fake.Is("badinit") ? 500 : 204, "");
  } else if (target == "/seen-init") {
    co_await Reply(exchange, 200, fake.init_body);
  } else if (target == "/stream") {
    co_await StreamForEver(exchange);
  } else if (target == "/echo") {
    co_await Echo(exchange);
  } else if (target == "/upgrade-echo") {
    co_await EchoUpgraded(exchange);
  } else if (target == "/fake/panic") {
    fake.Exit(wire::ExitReason::kGuestPanic, "attempted to kill init");
  } else if (target == "/fake/vanish") {
    ::_exit(3);
  } else {
    co_await Reply(exchange, 404, "agent has no " + target);
  }
}

// The program of the user's that listens on port 8080 of the guest: shows what it was sent.
asio::awaitable<void> Fake::Web(http::Exchange& exchange) {
  std::string text = exchange.request().method + " " + exchange.request().target + "\n";
  for (const http::Header& header : exchange.request().headers.all()) {
    text += header.name + ": " + header.value + "\n";
  }
  http::ResponseHead head{200, {{"Content-Type", "text/html"}, {"X-Guest", "yes"}}};
  [[maybe_unused]] const auto sent = co_await exchange.Respond(std::move(head), std::move(text));
}

asio::awaitable<void> ServeForward(Fake& fake, http::Stream stream) {
  std::array<unsigned char, 2> port{};
  co_await asio::async_read(stream, asio::buffer(port), http::kNoThrow);
  const bool is_open = port[0] + port[1] * 256 == 8080;
  const unsigned char outcome = is_open ? 0 : ECONNREFUSED;
  co_await asio::async_write(stream, asio::buffer(&outcome, 1), http::kNoThrow);
  if (is_open) {
    fake.web.ServeConnection(std::move(stream), "guest");
  }
}

void OnConnect(Fake& fake, uint32_t id, uint32_t port, std::vector<UniqueFd> fds) {
  auto stream = http::AdoptStream(fake.executor, std::move(fds.at(0)));
  if (!stream || (port != wire::kEnvdPort && port != wire::kForwardPort)) {
    fake.Send(id, wire::Reply{false, ErrorCode::kUnavailable, "guest refused"});
    return;
  }
  fake.Send(id, wire::Reply{});
  if (port == wire::kEnvdPort) {
    fake.agent.ServeConnection(*std::move(stream), "host");
  } else {
    http::Spawn(fake.executor, ServeForward(fake, *std::move(stream)), "forward");
  }
}

void OnStart(Fake& fake, uint32_t id, wire::StartRequest start, std::vector<UniqueFd> fds) {
  fake.start = std::move(start);
  fake.fds = std::move(fds);
  if (fake.Is("refuse")) {
    fake.Send(id, wire::Reply{false, ErrorCode::kInvalidArgument, "kernel is not an ELF file"});
    return;
  }
  fake.Send(id, wire::Reply{});
  // Serial log and exit record are the last two.
  [[maybe_unused]] const auto written =
      WriteFull(fake.fds.at(fake.fds.size() - 2).get(), "fake guest boots\n");
  [[maybe_unused]] const auto logged = WriteFull(2, "fake vmm starts\n");
  if (fake.Is("panic")) {
    fake.Exit(wire::ExitReason::kGuestPanic, "no init found");
  }
  if (!fake.Is("silent")) {
    fake.hello = wire::Encode(wire::Hello{1, "0.1.0", "0.6.13", "6.1.0-fake", "boot-id"});
    fake.Send(0, wire::HelloEvent{fake.hello, 1234});
  }
}

void OnPacket(Fake& fake, wire::VmmPacket packet, std::vector<UniqueFd> fds) {
  if (auto* start = std::get_if<wire::StartRequest>(&packet.message)) {
    OnStart(fake, packet.id, std::move(*start), std::move(fds));
  } else if (const auto* connect = std::get_if<wire::ConnectRequest>(&packet.message)) {
    OnConnect(fake, packet.id, connect->guest_port, std::move(fds));
  } else if (std::holds_alternative<wire::StatusRequest>(packet.message)) {
    const auto state = fake.hello.empty() ? wire::VmState::kNew : wire::VmState::kRunning;
    fake.Send(packet.id, wire::StatusReply{state, fake.hello, {}, 1234, 0});
  } else if (std::holds_alternative<wire::KillRequest>(packet.message) && !fake.Is("deaf")) {
    fake.Send(packet.id, wire::Reply{});
    fake.Exit(wire::ExitReason::kKilled, "");
  }
}

asio::awaitable<void> ServeClient(Fake& fake,
                                  std::shared_ptr<asio::posix::stream_descriptor> client) {
  while (fake.client == client) {
    const auto [error] =
        co_await client->async_wait(asio::posix::stream_descriptor::wait_read, http::kNoThrow);
    auto packet = ReceivePacket(client->native_handle());
    if (error || !packet || packet->bytes.empty()) {
      break;
    }
    if (auto decoded = wire::DecodeVmmPacket(packet->bytes)) {
      OnPacket(fake, *std::move(decoded), std::move(packet->fds));
    }
  }
}

asio::awaitable<void> AcceptClients(Fake& fake) {
  for (;;) {
    const auto [error] = co_await fake.listener.async_wait(
        asio::posix::stream_descriptor::wait_read, http::kNoThrow);
    const int fd = ::accept4(fake.listener.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
    if (error || fd < 0) {
      continue;
    }
    fake.client = std::make_shared<asio::posix::stream_descriptor>(fake.executor, fd);
    http::Spawn(fake.executor, ServeClient(fake, fake.client), "client");
  }
}

}  // namespace
}  // namespace space

int main() {
  // A test that dies leaves nothing behind for long.
  ::alarm(120);
  boost::asio::io_context io;
  space::Fake fake(io);
  space::http::Spawn(io.get_executor(), space::AcceptClients(fake), "accept");
  io.run();
  return 0;
}
