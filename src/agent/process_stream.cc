#include "agent/process_stream.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "agent/base64.h"
#include "agent/proto/process.pb.h"

namespace space::agent {
namespace {

namespace pb = rpc::process;

constexpr size_t kMaxBatchBytes = 128 * 1024;

std::string_view JsonName(OutputKind kind) {
  switch (kind) {
    case OutputKind::kStdout:
      return "stdout";
    case OutputKind::kStderr:
      return "stderr";
    case OutputKind::kTerminal:
      return "pty";
  }
  return "stdout";
}

// By hand: protobuf's JSON writer takes several times as long, and output may be gigabytes.
void AppendJsonOutput(const Output& output, std::string& batch) {
  std::string payload = R"({"event":{"data":{")";
  payload += JsonName(output.kind);
  payload += R"(":")";
  AppendBase64(*output.bytes, payload);
  payload += R"("}}})";
  AppendEnvelope(0, payload, batch);
}

void AppendProtoOutput(const Output& output, std::string& batch) {
  pb::EventResponse response;
  auto* data = response.mutable_event()->mutable_data();
  switch (output.kind) {
    case OutputKind::kStdout:
      data->set_stdout(*output.bytes);
      break;
    case OutputKind::kStderr:
      data->set_stderr(*output.bytes);
      break;
    case OutputKind::kTerminal:
      data->set_pty(*output.bytes);
      break;
  }
  AppendEnvelope(0, response.SerializeAsString(), batch);
}

std::string TakeBatch(Codec codec, Subscription& subscription) {
  std::string batch;
  while (batch.size() < kMaxBatchBytes) {
    const auto output = subscription.Pop();
    if (!output) {
      break;
    }
    if (codec == Codec::kJson) {
      AppendJsonOutput(*output, batch);
    } else {
      AppendProtoOutput(*output, batch);
    }
  }
  return batch;
}

pb::EventResponse EndEvent(const ProcessEnd& end) {
  pb::EventResponse response;
  auto* event = response.mutable_event()->mutable_end();
  event->set_exit_code(end.exit_code);
  event->set_exited(end.exited);
  event->set_status(end.status);
  if (end.exit_code != 0) {
    event->set_error(end.status);
  }
  return response;
}

asio::awaitable<void> CloseWithPeer(http::Exchange& exchange,
                                    std::shared_ptr<Subscription> subscription) {
  co_await exchange.WaitForPeerClose();
  subscription->Close();
}

asio::awaitable<void> WriteEvents(RpcCall& call, Process& process, Subscription& subscription,
                                  Clock::time_point deadline) {
  auto last_sent = Clock::now();
  while (!subscription.is_closed()) {
    if (subscription.error()) {
      co_return co_await call.EndStream(&*subscription.error());
    }
    const std::string batch = TakeBatch(call.codec(), subscription);
    if (!batch.empty()) {
      process.OnOutputTaken();
      if (!co_await call.WriteRaw(batch)) {
        co_return;
      }
      last_sent = Clock::now();
    } else if (subscription.end()) {
      if (co_await call.WriteMessage(EndEvent(*subscription.end()))) {
        co_await call.EndStream();
      }
      co_return;
    } else if (const auto now = Clock::now(); now >= deadline) {
      const Error error(ErrorCode::kTimeout, "the stream's deadline has passed");
      co_return co_await call.EndStream(&error);
    } else if (now >= last_sent + call.keepalive()) {
      pb::EventResponse keepalive;
      keepalive.mutable_event()->mutable_keepalive();
      if (!co_await call.WriteMessage(keepalive)) {
        co_return;
      }
      last_sent = Clock::now();
    } else {
      co_await subscription.changed().Wait(std::min(deadline, last_sent + call.keepalive()));
    }
  }
}

}  // namespace

asio::awaitable<void> StreamProcess(RpcCall& call, std::shared_ptr<Process> process,
                                    std::shared_ptr<Subscription> subscription,
                                    Clock::time_point deadline) {
  pb::EventResponse start;
  start.mutable_event()->mutable_start()->set_pid(static_cast<uint32_t>(process->pid()));
  if (co_await call.StartStream() && co_await call.WriteMessage(start)) {
    asio::co_spawn(co_await asio::this_coro::executor, CloseWithPeer(call.exchange(), subscription),
                   asio::detached);
    co_await WriteEvents(call, *process, *subscription, deadline);
  }
  process->Unsubscribe(subscription);
}

}  // namespace space::agent
