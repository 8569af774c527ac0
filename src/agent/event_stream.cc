#include "agent/event_stream.h"

#include <algorithm>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace space::agent {
namespace {

asio::awaitable<void> CloseWithPeer(http::Exchange& exchange, std::shared_ptr<EventSource> source) {
  co_await exchange.WaitForPeerClose();
  source->Close();
}

asio::awaitable<void> Follow(RpcCall& call, EventSource& source, Clock::time_point deadline) {
  auto last_sent = Clock::now();
  while (!source.is_closed()) {
    if (source.error()) {
      co_return co_await call.EndStream(&*source.error());
    }
    std::string batch = source.TakeBatch(call.codec());
    if (batch.empty()) {
      const auto end = source.TakeEnd(call.codec());
      if (end && !*end) {
        co_return co_await call.EndStream(&end->error());
      }
      if (end) {
        if (co_await call.WriteRaw(**end)) {
          co_await call.EndStream();
        }
        co_return;
      }
      const auto now = Clock::now();
      if (now >= deadline) {
        const Error error(ErrorCode::kTimeout, "the stream's deadline has passed");
        co_return co_await call.EndStream(&error);
      }
      if (now < last_sent + call.keepalive()) {
        co_await source.changed().Wait(std::min(deadline, last_sent + call.keepalive()));
        continue;
      }
      batch = source.Keepalive(call.codec());
    }
    if (!co_await call.WriteRaw(batch)) {
      co_return;
    }
    last_sent = Clock::now();
  }
}

}  // namespace

asio::awaitable<void> StreamEvents(RpcCall& call, std::string first,
                                   std::shared_ptr<EventSource> source,
                                   Clock::time_point deadline) {
  auto written = co_await call.StartStream();
  if (written) {
    written = co_await call.WriteRaw(first);
  }
  if (!written) {
    co_return;
  }
  asio::co_spawn(co_await asio::this_coro::executor, CloseWithPeer(call.exchange(), source),
                 asio::detached);
  co_await Follow(call, *source, deadline);
}

std::string AsEnvelope(Codec codec, const google::protobuf::Message& message) {
  std::string envelope;
  AppendEnvelope(0, Encode(codec, message), envelope);
  return envelope;
}

}  // namespace space::agent
