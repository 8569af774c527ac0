// A space-vmm without a VM: speaks wire/vmm_control.h on descriptor 3 and plays agent and guest on
// the socket pairs that it is given. Words on the kernel command line make it misbehave:
//   fake=refuse      StartRequest fails        fake=silent    no hello
//   fake=panic       ends before the hello     fake=deaf      ignores KillRequest
//   fake=badinit     the agent refuses /init
//   fake=norestore   RestoreRequest fails     fake=nosnapshot  SnapshotRequest fails
//   fake=halfsnapshot  SnapshotReply has an error, the tops are swapped
//   fake=diesnapshot   it dies while it takes one
//   fake=dierestore  it dies while it is restored; fake=dierestore:FILE  the first one that makes
//   FILE fake=badrestore  the agent refuses /init with "restore" fake=badfreeze, fake=badthaw   the
//   agent refuses those fake=slowsnapshot  a snapshot takes half a second fake=sick        GET
//   /health fails         fake=nopages     WorkingSetRequest fails
//   fake=hanginit  the agent never answers /init
//   fake=boasts    GET /metrics answers with nonsense
// POST /fake/word adds a word to a VM that runs; it is in its snapshots too. Its memory is the text
// that POST /memory sets and GET /memory shows; its disk the text that POST /disk appends to
// in its first page and GET /disk shows.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include "base/fd.h"
#include "base/seqpacket.h"
#include "http/event.h"
#include "http/server.h"
#include "http/spawn.h"
#include "layer/sparse_layer.h"
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
  // The text behind "fake=<word>:"; empty when it is not there.
  std::string ValueOf(const std::string& word) const {
    const std::string text = start.command_line + " ";
    const size_t at = text.find("fake=" + word + ":");
    if (at == std::string::npos) {
      return "";
    }
    const size_t from = at + word.size() + 6;
    return text.substr(from, text.find(' ', from) - from);
  }
  [[noreturn]] void Exit(wire::ExitReason reason, std::string detail);
  void Send(uint32_t id, wire::VmmMessage message) {
    if (client != nullptr) {
      [[maybe_unused]] const auto sent =
          SendPacket(client->native_handle(), wire::Encode({id, std::move(message)}));
    }
  }
  bool Is(const std::string& word) const {
    return (start.command_line + " ").find("fake=" + word + " ") != std::string::npos;
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
  std::string memory;
  bool is_paused = false;
  bool is_frozen = false;  // user processes
  uint32_t memory_layers = 0;
  int resumes = 0;
  std::vector<UniqueFd> root;  // layers of the first disk, bottom first
};

// The disk's first page, as text: of the topmost layer that has it.
std::string DiskText(const std::vector<UniqueFd>& root) {
  for (size_t at = root.size(); at > 1; --at) {  // the bottom is a raw image
    auto copy = root[at - 1].Duplicate();
    auto layer = SparseLayer::Open(copy ? *std::move(copy) : UniqueFd());
    if (layer && layer->StateOf(0) == PageState::kPresent) {
      std::string text(4096, '\0');
      const ssize_t got =
          ::pread(layer->fd(), text.data(), text.size(), SparseLayer::FileOffset(0));
      return got < 0 ? "unreadable" : text.substr(0, text.find('\0'));
    }
  }
  return {};
}

void AppendDiskText(const std::vector<UniqueFd>& root, const std::string& more) {
  std::string text = DiskText(root) + more;
  text.resize(4096);
  auto copy = root.back().Duplicate();
  auto layer = SparseLayer::Open(copy ? *std::move(copy) : UniqueFd());
  if (layer) {
    layer->Mark(0, 1, PageState::kPresent);
    const auto written =
        PwriteFull(layer->fd(), std::as_bytes(std::span(text)), SparseLayer::FileOffset(0));
    [[maybe_unused]] const bool is_done = written && layer->WriteMap();
  }
}

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

constexpr const char* kUse =
    R"({"cpu_count":2,"cpu_used_pct":12.5,"mem_total":4096,"mem_used":1024,"mem_cache":512,)"
    R"("disk_used":7,"disk_total":9})";
constexpr const char* kBoast =
    R"({"cpu_count":-1,"cpu_used_pct":1e300,"mem_total":"many","mem_used":1e300,"disk_used":[]})";

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

asio::awaitable<void> Contents(Fake& fake, http::Exchange& exchange) {
  const std::string& target = exchange.request().target;
  auto body = co_await exchange.ReadAll(1 << 16);
  const bool is_write = exchange.request().method == "POST" && body;
  if (target == "/fake/word") {
    fake.start.command_line += " fake=" + body.value_or("");
  } else if (target == "/memory" && is_write) {
    fake.memory = *body;
  } else if (target == "/disk" && is_write && !fake.root.empty()) {
    AppendDiskText(fake.root, *body);
  }
  std::string text = fake.memory;
  if (target == "/disk") {
    text = DiskText(fake.root);
  }
  co_await Reply(exchange, 200, std::move(text));
}

asio::awaitable<void> Fake::Agent(Fake& fake, http::Exchange& exchange) {
  const std::string& target = exchange.request().target;
  if (target == "/health") {
    co_await Reply(exchange, fake.Is("sick") ? 503 : 204, "");
  } else if (target == "/metrics") {
    const std::string token(exchange.request().headers.Find("X-Access-Token").value_or(""));
    const bool may = fake.init_body.find("\"accessToken\":\"" + token + "\"") != std::string::npos;
    co_await Reply(exchange, may ? 200 : 401, fake.Is("boasts") ? kBoast : kUse);
  } else if (target == "/init") {
    auto body = co_await exchange.ReadAll(1 << 20);
    fake.init_body = body ? *body : "";
    if (fake.Is("hanginit")) {
      co_await exchange.WaitForPeerClose();
      co_return;
    }
    const bool is_restore = fake.init_body.find("\"restore\"") != std::string::npos;
    const bool is_bad = fake.Is("badinit") || (is_restore && fake.Is("badrestore"));
    fake.is_frozen = fake.is_frozen && is_bad;
    co_await Reply(exchange, is_bad ? 500 : 204, is_bad ? "no entropy" : "");
  } else if (target == "/freeze" || target == "/unfreeze") {
    const auto body = co_await exchange.ReadAll(1 << 20);
    const bool is_bad = fake.Is(target == "/freeze" ? "badfreeze" : "badthaw");
    fake.is_frozen = is_bad ? fake.is_frozen : target == "/freeze";
    co_await Reply(exchange, is_bad ? 500 : 204, "");
  } else if (target == "/process.Process/Start") {
    [[maybe_unused]] const auto body = co_await exchange.ReadAll(1 << 20);
    co_await Reply(exchange, 200, "");
  } else if (target == "/memory" || target == "/disk" || target == "/fake/word") {
    co_await Contents(fake, exchange);
  } else if (target == "/frozen") {
    co_await Reply(exchange, 200, fake.is_frozen ? "yes" : "no");
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
  if (fake.is_paused) {
    return;  // a guest that stands still says nothing
  }
  const bool is_agent = port == wire::kEnvdPort || port == wire::kControlPort;
  if (!stream || (!is_agent && port != wire::kForwardPort)) {
    fake.Send(id, wire::Reply{false, ErrorCode::kUnavailable, "guest refused"});
    return;
  }
  fake.Send(id, wire::Reply{});
  if (is_agent) {
    fake.agent.ServeConnection(*std::move(stream), port == wire::kControlPort ? "host" : "client");
  } else {
    http::Spawn(fake.executor, ServeForward(fake, *std::move(stream)), "forward");
  }
}

// Takes its layers out of `fds`, which has them from `at` on.
void TakeRoot(Fake& fake, const wire::DiskSpec& disk, size_t at) {
  for (size_t layer = 0; layer < disk.layers.size(); ++layer) {
    fake.root.push_back(std::move(fake.fds.at(at + layer)));
  }
}

void OnStart(Fake& fake, uint32_t id, wire::StartRequest start, std::vector<UniqueFd> fds) {
  fake.start = std::move(start);
  fake.fds = std::move(fds);
  TakeRoot(fake, fake.start.disks.at(0), 2);
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

// State: words, memory's text, number of memory layers, each on a line.
void OnRestore(Fake& fake, uint32_t id, const wire::RestoreRequest& request,
               std::vector<UniqueFd> fds) {
  fake.fds = std::move(fds);
  std::string state(4096, '\0');
  const ssize_t got = ::pread(fake.fds.at(0).get(), state.data(), state.size(), 0);
  state.resize(got < 0 ? 0 : static_cast<size_t>(got));
  const size_t first = state.find('\n');
  const size_t second = state.find('\n', first + 1);
  if (second == std::string::npos) {
    fake.Send(id, wire::Reply{false, ErrorCode::kInvalidArgument, "state is not one"});
    return;
  }
  fake.start.command_line = state.substr(0, first);
  fake.memory = state.substr(first + 1, second - first - 1);
  const auto layers = static_cast<uint32_t>(std::atoi(state.c_str() + second + 1));
  const std::string once = fake.ValueOf("dierestore");
  if (fake.Is("dierestore")) {
    ::_exit(6);
  }
  if (!once.empty() && UniqueFd(::open(once.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600)).valid()) {
    ::_exit(6);
  }
  if (fake.Is("norestore") || layers != request.memory_layers) {
    fake.Send(id, wire::Reply{false, ErrorCode::kInvalidArgument, "memory layers do not fit"});
    return;
  }
  fake.memory_layers = layers;
  TakeRoot(fake, request.disks.at(0), 1 + layers);
  if (request.has_working_set) {
    fake.fds.pop_back();  // so that the exit record is last
  }
  fake.is_paused = true;
  fake.hello = "restored";
  fake.Send(id, wire::Reply{});
}

asio::awaitable<void> AnswerSnapshot(Fake& fake, uint32_t id, wire::SnapshotRequest request,
                                     std::vector<UniqueFd> fds) {
  if (fake.Is("slowsnapshot")) {
    asio::steady_timer timer(fake.executor, std::chrono::milliseconds(500));
    co_await timer.async_wait(http::kNoThrow);
  }
  wire::SnapshotReply reply;
  reply.pause_us = 1500;
  reply.dirty_pages = 7;
  reply.written_pages = 7;
  if (fake.Is("halfsnapshot")) {
    reply.error = "disk full";
  }
  const std::string state = fake.start.command_line + "\n" + fake.memory + "\n" +
                            std::to_string(request.kept_memory_layers + 1) + "\n";
  const auto written = WriteFull(fds.at(0).get(), state);
  if (!written) {
    reply.error = written.error().message();
  }
  fake.Send(id, reply);
}

void OnSnapshot(Fake& fake, uint32_t id, const wire::SnapshotRequest& request,
                std::vector<UniqueFd> fds) {
  if (fake.Is("diesnapshot")) {
    ::_exit(5);
  }
  if (fake.Is("nosnapshot") || fds.size() != 3 || request.kept_memory_layers > fake.memory_layers) {
    fake.Send(id, wire::Reply{false, ErrorCode::kExhausted, "snapshot refused"});
    return;
  }
  fake.root.push_back(std::move(fds.at(2)));
  fake.is_paused = request.stays_paused;
  http::Spawn(fake.executor, AnswerSnapshot(fake, id, request, std::move(fds)), "snapshot");
}

void OnPauseOrResume(Fake& fake, uint32_t id, bool is_pause) {
  fake.is_paused = is_pause;
  fake.resumes += is_pause ? 0 : 1;
  fake.Send(id, wire::Reply{});
}

void OnPacket(Fake& fake, wire::VmmPacket packet, std::vector<UniqueFd> fds) {
  if (auto* start = std::get_if<wire::StartRequest>(&packet.message)) {
    OnStart(fake, packet.id, std::move(*start), std::move(fds));
  } else if (const auto* connect = std::get_if<wire::ConnectRequest>(&packet.message)) {
    OnConnect(fake, packet.id, connect->guest_port, std::move(fds));
  } else if (const auto* restore = std::get_if<wire::RestoreRequest>(&packet.message)) {
    OnRestore(fake, packet.id, *restore, std::move(fds));
  } else if (const auto* snapshot = std::get_if<wire::SnapshotRequest>(&packet.message)) {
    OnSnapshot(fake, packet.id, *snapshot, std::move(fds));
  } else if (std::holds_alternative<wire::PauseRequest>(packet.message)) {
    OnPauseOrResume(fake, packet.id, true);
  } else if (std::holds_alternative<wire::ResumeRequest>(packet.message)) {
    OnPauseOrResume(fake, packet.id, false);
  } else if (std::holds_alternative<wire::WorkingSetRequest>(packet.message)) {
    const auto written = WriteFull(fds.at(0).get(), "pages\n");
    const bool is_ok = written && !fake.Is("nopages");
    fake.Send(packet.id, wire::Reply{is_ok, ErrorCode::kIo, is_ok ? "" : "no pages"});
  } else if (std::holds_alternative<wire::StatusRequest>(packet.message)) {
    const auto state = fake.hello.empty() ? wire::VmState::kNew
                       : fake.is_paused   ? wire::VmState::kPaused
                                          : wire::VmState::kRunning;
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
