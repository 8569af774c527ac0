#include "api/proxy.h"

#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/write.hpp>

#include "api/json_fields.h"
#include "api/proxy_access.h"
#include "api/proxy_head.h"
#include "http/client.h"
#include "http/event.h"
#include "node/guest_port.h"

namespace space {
namespace {

constexpr int kConnectLimitMs = 30'000;
constexpr size_t kChunkBytes = 64 * 1024;

asio::awaitable<void> SendProblem(http::Exchange& exchange, ProxyProblem problem,
                                  const ProxyTarget& target) {
  ProxyAnswer answer = AnswerProblem(problem, target, exchange.request());
  [[maybe_unused]] const auto sent =
      co_await exchange.Respond(std::move(answer.head), std::move(answer.body));
}

std::string MaskHostOf(const SandboxRecord& record) {
  if (record.network.empty()) {
    return {};
  }
  const auto network = ParseJson(record.network);
  if (!network || !network->is_object()) {
    return {};
  }
  const auto mask = JsonFields(network->get_object()).Text("maskRequestHost");
  return mask && *mask ? **mask : std::string();
}

// Client to guest; afterwards waits for the client to go away, since it may hang up while the guest
// says nothing. Returns only when nothing more can be done for the request.
asio::awaitable<void> PumpRequest(http::Exchange& exchange, http::ClientConnection& guest,
                                  bool has_body) {
  std::vector<char> chunk(has_body ? kChunkBytes : 1);
  while (has_body) {
    const auto got = co_await exchange.Read(chunk);
    if (!got) {
      co_return;  // client gone or its body is broken
    }
    if (*got == 0) {
      if (!co_await guest.FinishRequest()) {
        break;
      }
      has_body = false;
    } else if (!co_await guest.Write({chunk.data(), *got})) {
      break;  // the guest may have answered already without reading all
    }
  }
  co_await exchange.WaitForPeerClose();
}

enum class Outcome { kDone, kNoAnswer, kCut, kUpgraded };

// Guest to client. kNoAnswer: nothing was sent to the client yet.
asio::awaitable<Outcome> PumpResponse(http::Exchange& exchange, http::ClientConnection& guest,
                                      bool is_own_origin, http::ResponseHead& upgrade) {
  auto head = co_await guest.ReadHead();
  if (!head) {
    co_return Outcome::kNoAnswer;
  }
  http::ResponseHead out = HeadForClient(*head, is_own_origin);
  if (head->status == 101 && !IsUpgrade(exchange.request())) {
    co_return Outcome::kNoAnswer;  // to a question that was not asked
  }
  if (head->status == 101) {
    upgrade = std::move(out);
    co_return Outcome::kUpgraded;
  }
  std::optional<uint64_t> length;
  if (head->headers.Find("Content-Length")) {
    length = BodyLengthOf(head->headers);
  }
  if (!co_await exchange.Start(std::move(out), length)) {
    co_return Outcome::kCut;
  }
  std::vector<char> chunk(kChunkBytes);
  for (;;) {
    const auto got = co_await guest.Read(chunk);
    if (!got) {
      co_return Outcome::kCut;
    }
    if (*got == 0) {
      break;
    }
    if (!co_await exchange.Write({chunk.data(), *got})) {
      co_return Outcome::kCut;
    }
  }
  // A HEAD response announces a length and has no body; the exchange knows.
  co_return co_await exchange.Finish() ? Outcome::kDone : Outcome::kCut;
}

asio::awaitable<void> RunUpgrade(http::Exchange& exchange, http::ClientConnection guest,
                                 http::ResponseHead head, std::shared_ptr<Sandbox> sandbox) {
  auto [guest_stream, guest_ahead] = std::move(guest).TakeStream();
  auto raw = co_await exchange.Upgrade(std::move(head));
  if (!raw) {
    co_return;
  }
  http::Stream& client_stream = raw->stream;
  const Sandbox::CutGuard guard(sandbox, [&client_stream, &guest = guest_stream] {
    http::CutStream(client_stream);
    http::CutStream(guest);
  });
  const auto [to_client, count] =
      co_await asio::async_write(client_stream, asio::buffer(guest_ahead), http::kNoThrow);
  const auto [to_guest, sent] =
      co_await asio::async_write(guest_stream, asio::buffer(raw->read_ahead), http::kNoThrow);
  if (!to_client && !to_guest) {
    co_await http::Splice(client_stream, guest_stream);
  }
}

asio::awaitable<void> Forward(http::Exchange& exchange, const ProxyTarget& target,
                              std::shared_ptr<Sandbox> sandbox, http::Stream stream) {
  using namespace asio::experimental::awaitable_operators;
  const http::RequestHead& request = exchange.request();
  http::ClientConnection guest(std::move(stream));
  http::ResponseHead upgrade;
  Outcome outcome = Outcome::kDone;
  {
    const Sandbox::CutGuard guard(sandbox, [&exchange, &guest] {
      exchange.Cut();
      guest.Close();
    });
    const std::optional<uint64_t> length = BodyLengthOf(request.headers);
    http::RequestHead head = HeadForGuest(request, MaskHostOf(sandbox->record), target.port);
    const auto sent = co_await guest.Send(std::move(head), length);
    outcome = Outcome::kNoAnswer;
    if (sent) {
      auto first = co_await (PumpResponse(exchange, guest, target.is_by_host, upgrade) ||
                             PumpRequest(exchange, guest, length != 0));
      // The request side ends first only when the client has gone.
      outcome = first.index() == 0 ? std::get<0>(first) : Outcome::kCut;
    }
  }
  if (outcome == Outcome::kUpgraded) {
    co_await RunUpgrade(exchange, std::move(guest), std::move(upgrade), std::move(sandbox));
    co_return;
  }
  guest.Close();
  if (outcome == Outcome::kCut) {
    exchange.Cut();
  } else if (outcome == Outcome::kNoAnswer) {
    co_await SendProblem(exchange,
                         sandbox->is_usable() ? ProxyProblem::kPortClosed : ProxyProblem::kNotFound,
                         target);
  }
}

}  // namespace

asio::awaitable<void> ProxyRequest(Node& node, http::Exchange& exchange, ProxyTarget target) {
  if (target.port == kEnvdTcpPort && IsInternalPath(exchange.request().target)) {
    co_await SendProblem(exchange, ProxyProblem::kInternalPath, target);
    co_return;
  }
  std::shared_ptr<Sandbox> sandbox = node.FindUsable(target.sandbox_id);
  const std::optional<SandboxRecord> asleep =
      sandbox == nullptr ? node.FindWakeable(target.sandbox_id) : std::nullopt;
  if (sandbox == nullptr && !asleep) {
    co_await SendProblem(exchange, ProxyProblem::kNotFound, target);
    co_return;
  }
  auto problem =
      CheckTrafficToken(asleep ? *asleep : sandbox->record, target, exchange.request().headers);
  if (!problem && asleep && !MayWake(*asleep, target, exchange.request(), Node::Now())) {
    problem = ProxyProblem::kWakeDenied;
  }
  if (problem) {
    co_await SendProblem(exchange, *problem, target);
    co_return;
  }
  if (asleep) {
    sandbox = co_await node.Wake(target.sandbox_id);
  }
  if (sandbox == nullptr || sandbox->vmm == nullptr) {
    co_await SendProblem(exchange, ProxyProblem::kNotFound, target);
    co_return;
  }
  auto stream = co_await ConnectGuestPort(sandbox->vmm, target.port, kConnectLimitMs);
  if (!stream) {
    co_await SendProblem(exchange,
                         sandbox->is_usable() ? ProxyProblem::kPortClosed : ProxyProblem::kNotFound,
                         target);
    co_return;
  }
  co_await Forward(exchange, target, std::move(sandbox), *std::move(stream));
}

}  // namespace space
